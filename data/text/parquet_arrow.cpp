#include <algorithm>
#include <utility>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "data/text/sources.h"

namespace anabranch {
namespace {

// Reads one column, a row group at a time.
class ParquetColumn final : public DocumentSource {
 public:
  ParquetColumn(const std::string& path, const TextFormat& format)
      : path_(path), format_(format), bytes_(InputFile(path).size()) {
    guard([&] {
      auto file = arrow::io::ReadableFile::Open(path);
      check(file.status());
      parquet::arrow::FileReaderBuilder builder;
      check(builder.Open(*file));
      check(builder.Build(&reader_));
      groups_ = reader_->num_row_groups();
      check(reader_->GetSchema(&schema_));
    });
    check_column();
  }

  bool next(std::string& document) override {
    while (row_ == rows_.size()) {
      if (group_ == groups_) return false;
      load_group();
    }
    ++number_;
    const auto& [text, is_null] = rows_[row_++];
    if (is_null) throw data_error(where(), ": '", format_.field, "' is null; expected a string");
    if (std::ssize(text) > format_.max_document_bytes) {
      throw data_error(where(), ": the document has ", text.size(), " bytes, more than ",
                       format_.max_document_bytes);
    }
    if (!is_utf8(text)) throw data_error(where(), ": '", format_.field, "' is not UTF-8");
    document.assign(text);
    return true;
  }

  [[nodiscard]] int64_t bytes_read() const override {
    return groups_ == 0 ? bytes_ : bytes_ / groups_ * group_;
  }

  [[nodiscard]] std::string where() const override { return join(path_, ": row ", number_); }

 private:
  void check(const arrow::Status& status) const {
    if (!status.ok()) throw data_error(path_, ": damaged Parquet data: ", status.message());
  }

  // Parts of the library throw instead of giving a status.
  template <class F>
  void guard(const F& f) const {
    try {
      f();
    } catch (const parquet::ParquetException& error) {
      throw data_error(path_, ": damaged Parquet data: ", error.what());
    }
  }

  void check_column() {
    const int index = schema_->GetFieldIndex(format_.field);
    if (index < 0) {
      throw data_error(path_, " has no column '", format_.field, "' (or two); its columns are ",
                       join_names());
    }
    const arrow::Type::type kind = schema_->field(index)->type()->id();
    const bool text = kind == arrow::Type::STRING || kind == arrow::Type::LARGE_STRING;
    if (!text) {
      throw data_error(path_, ": column '", format_.field, "' is ",
                       schema_->field(index)->type()->ToString(), "; expected string");
    }
    // Leaves are counted with those of nested columns before it.
    const auto* columns = reader_->parquet_reader()->metadata()->schema();
    column_ = columns->ColumnIndex(format_.field);
    AB_CHECK(column_ >= 0, path_, ": column ", format_.field, " has no leaf");
  }

  [[nodiscard]] std::string join_names() const {
    std::string names;
    for (const std::string& name : schema_->field_names()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    return names;
  }

  void load_group() {
    rows_.clear();
    row_ = 0;
    guard([&] { check(reader_->RowGroup(group_)->ReadTable({column_}, &table_)); });
    ++group_;
    for (const auto& chunk : table_->column(0)->chunks()) {
      if (chunk->type_id() == arrow::Type::STRING) {
        take(static_cast<const arrow::StringArray&>(*chunk));
      } else {
        take(static_cast<const arrow::LargeStringArray&>(*chunk));
      }
    }
  }

  template <class Array>
  void take(const Array& chunk) {
    for (int64_t i = 0; i < chunk.length(); ++i) {
      const bool is_null = chunk.IsNull(i);
      rows_.emplace_back(is_null ? std::string_view() : std::string_view(chunk.GetView(i)),
                         is_null);
    }
  }

  std::string path_;
  TextFormat format_;
  int64_t bytes_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::Table> table_;  // holds what rows_ looks into
  std::vector<std::pair<std::string_view, bool>> rows_;
  size_t row_ = 0;
  int column_ = -1, group_ = 0, groups_ = 0;
  int64_t number_ = 0;
};

}  // namespace

bool has_parquet() { return true; }

std::unique_ptr<DocumentSource> open_parquet(const std::string& path, const TextFormat& format) {
  return std::make_unique<ParquetColumn>(path, format);
}

}  // namespace anabranch
