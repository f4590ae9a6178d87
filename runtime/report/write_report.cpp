#include "runtime/report/write_report.h"

#include <filesystem>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "runtime/report/paper_figures.h"
#include "runtime/report/report_files.h"
#include "runtime/report/report_page.h"
#include "runtime/report/report_plots.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw io_error("cannot make ", folder.string(), ": ", failure.message());
}

void write_figures(const std::vector<NamedDrawing>& drawings, const fs::path& folder) {
  make_folder(folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".svg") fs::remove(entry.path());
  }
  for (const NamedDrawing& drawing : drawings) {
    write_atomically((folder / (drawing.name + ".svg")).string(), drawing.svg);
  }
}

}  // namespace

void write_report(const SweepReport& report, const ReportWish& wish,
                  const std::vector<SizeSeries>& series, const std::string& folder, bool figures) {
  const fs::path out = folder;
  make_folder(out);
  std::vector<PageSection> sections{
      {"training loss",
       "Means over seeds of hundredths of a run, with the range over seeds. Time is that of "
       "training "
       "steps, without validation and saves. The first tenth of a run may leave a plot at its top.",
       curve_plots(report, wish.pivot)},
      {"laws", "Validation loss of runs, and the law through them.", law_plots(series, wish.law)}};
  if (figures) {
    const std::vector<NamedDrawing> columns = column_plots(report, wish.pivot);
    std::vector<NamedDrawing> all = paper_figures(report);
    all.insert(all.begin(), columns.begin(), columns.end());
    write_figures(all, out / "figures");
    sections.push_back({"figures", "Means over seeds, with their range.", std::move(all)});
  }
  write_atomically((out / "report.md").string(), report_markdown(report, wish, series));
  write_atomically((out / "report.csv").string(), report_csv(report));
  write_atomically((out / "report.json").string(), report_json(report, series));
  write_atomically((out / "report.html").string(),
                   report_page(report.record.name, report_head(report),
                               report_tables(report, wish, series), sections));
}

}  // namespace anabranch
