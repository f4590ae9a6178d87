#include "data/hdf5/parser.h"

#include <algorithm>
#include <limits>

#include "data/hdf5/parser_bytes.h"

namespace anabranch::hdf5 {
namespace {

constexpr uint64_t kMostHeader = uint64_t{1} << 24U, kMostName = 4096;
constexpr size_t kMostDataSets = 1000000;
constexpr int kDeepest = 64;
constexpr int64_t kMostGroups = 1 << 16;  // links may multiply few bytes into many names
constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

// Message kinds, section IV.A.2.
enum : unsigned {
  kSpace = 1,
  kType = 3,
  kExternal = 7,
  kLayout = 8,
  kAttribute = 12,
  kContinuation = 16,
  kSymbolTable = 17,
  kLinkInfo = 2,
  kLink = 6
};

}  // namespace

Error Parser::broken(const std::string& why) const {
  return data_error(file_.path(), " is a damaged HDF5 file, or of a newer format than we read (",
                    why, "); copy it again, or rewrite it with: h5repack --low=0 --high=0");
}

Parser::Bytes Parser::take(uint64_t address, uint64_t size) const {
  const auto end = static_cast<uint64_t>(file_.size());
  if (address > end || size > end - address) {
    throw broken(join("a structure lies at byte ", address, " of ", end, ": truncated?"));
  }
  std::string bytes(size, '\0');
  file_.read(static_cast<int64_t>(address), bytes.data(), bytes.size());
  return {*this, std::move(bytes)};
}

// Section II.A.
void Parser::run() {
  if (file_.size() < 8 || take(0, 8).text(8) != "\x89HDF\r\n\x1a\n") {
    throw data_error(file_.path(), " is not an HDF5 file");
  }
  Bytes head = take(8, 100 - 8);
  const unsigned version = head.byte();
  if (version > 1) throw broken(join("superblock ", version));
  head.skip(4);
  if (head.byte() != 8 || head.byte() != 8) throw broken("addresses are not of 8 bytes");
  head.skip(version == 0 ? 9 : 13);
  if (head.number<uint64_t>() != 0) throw broken("the file does not begin at its first byte");
  head.skip(8);
  const auto end = head.number<uint64_t>();
  if (end > static_cast<uint64_t>(file_.size())) {
    throw data_error(file_.path(), " is truncated: it has ", file_.size(), " bytes and says ", end);
  }
  head.skip(16);
  visit(head.number<uint64_t>(), "", 0);
  std::sort(data_sets_.begin(), data_sets_.end(),
            [](const Hdf5DataSet& a, const Hdf5DataSet& b) { return a.name < b.name; });
}

void Parser::enter(uint64_t address) {
  if (!open_.insert(address).second) throw broken("a group contains itself");
  if (++entered_ > kMostGroups) throw broken("too many groups");
}

void Parser::visit(uint64_t address, const std::string& name, int depth) {
  if (depth > kDeepest) throw broken("groups are nested too deep");
  Object object;
  read_header(address, name, object);
  if (object.group) {
    enter(address);
    read_tree(object.tree, object.heap, name, depth);
    leave(address);
  } else if (object.has_type && object.has_space && object.has_layout) {
    add_data_set(name, object);
  }
}

// Section IV.A.1.a.
void Parser::read_header(uint64_t address, const std::string& name, Object& object) {
  Bytes prefix = take(address, 16);
  if (prefix.byte() != 1) throw broken("an object header is not of version 1");
  prefix.skip(7);
  std::vector<std::pair<uint64_t, uint64_t>> blocks = {{address + 16, prefix.number<uint32_t>()}};
  uint64_t total = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [begin, size] = blocks[i];
    total += std::min(size, kMostHeader + 1) + 1;
    if (total > kMostHeader) throw broken("an object header is too large");
    read_messages(take(begin, size), name, object, blocks);
  }
}

void Parser::read_messages(Bytes block, const std::string& name, Object& object,
                           std::vector<std::pair<uint64_t, uint64_t>>& more) {
  while (block.left() >= 8) {
    const unsigned kind = block.number<uint16_t>();
    const uint64_t size = block.number<uint16_t>();
    const unsigned flags = block.byte();
    block.skip(3);
    Bytes body = block.piece(size);
    if (kind == kContinuation) {
      const auto address = body.number<uint64_t>(), length = body.number<uint64_t>();
      more.emplace_back(address, length);
    } else if ((flags & 2U) != 0) {
      if (kind == kType) object.has_type = true;  // kept elsewhere: a type that we do not read
    } else {
      read_message(kind, std::move(body), name, object);
    }
  }
}

void Parser::read_message(unsigned kind, Bytes body, const std::string& name, Object& object) {
  switch (kind) {
    case kSymbolTable:
      object.group = true;
      object.tree = body.number<uint64_t>();
      object.heap = body.number<uint64_t>();
      break;
    case kLinkInfo:
    case kLink:
      throw broken("a group of the newer kind");
    case kSpace:
      object.extents = read_space(body);
      object.has_space = true;
      break;
    case kType:
      object.type = read_type(std::move(body)).element;
      object.has_type = true;
      break;
    case kExternal:
      object.external = true;
      break;
    case kLayout:  // section IV.A.2.i
      object.has_layout = true;
      if (body.byte() == 3 && body.byte() == 1) {
        object.contiguous = true;
        object.address = body.number<uint64_t>();
        object.bytes = body.number<uint64_t>();
      }
      break;
    case kAttribute:
      read_attribute(std::move(body), name);
      break;
    default:
      break;
  }
}

// Section III.A.1.
void Parser::read_tree(uint64_t address, uint64_t heap, const std::string& group, int depth) {
  if (depth > kDeepest) throw broken("a tree of names is too deep");
  enter(address);
  Bytes head = take(address, 24);
  head.expect("TREE");
  if (head.byte() != 0) throw broken("a tree is not one of names");
  const unsigned level = head.byte();
  const uint64_t count = head.number<uint16_t>();
  Bytes children = take(address + 24, count * 16);
  for (uint64_t i = 0; i < count; ++i) {
    children.skip(8);
    const auto child = children.number<uint64_t>();
    if (level == 0) {
      read_symbols(child, heap, group, depth);
    } else {
      read_tree(child, heap, group, depth + 1);
    }
  }
  leave(address);
}

// Section III.B.
void Parser::read_symbols(uint64_t address, uint64_t heap, const std::string& group, int depth) {
  enter(address);
  Bytes head = take(address, 8);
  head.expect("SNOD");
  head.skip(2);
  const uint64_t count = head.number<uint16_t>();
  Bytes entries = take(address + 8, count * 40);
  for (uint64_t i = 0; i < count; ++i) {
    const auto name = entries.number<uint64_t>(), object = entries.number<uint64_t>();
    const auto kind = entries.number<uint32_t>();
    entries.skip(20);
    if (kind == 2) continue;  // a symbolic link
    const std::string path = group + (group.empty() ? "" : "/") + read_name(heap, name);
    visit(object, path, depth + 1);
  }
  leave(address);
}

// Section III.D.
std::string Parser::read_name(uint64_t heap, uint64_t offset) const {
  Bytes head = take(heap, 32);
  head.expect("HEAP");
  head.skip(4);
  const auto size = head.number<uint64_t>();
  head.skip(8);
  const auto begin = head.number<uint64_t>();
  if (offset >= size) throw broken("a name lies outside of its heap");
  const uint64_t most = std::min(kMostName, size - offset);
  if (begin > kNowhere - offset) throw broken("a heap of names lies nowhere");
  const std::string text(take(begin + offset, most).text(most));
  const size_t end = text.find('\0');
  if (end == std::string::npos) throw broken("a name has no end");
  return text.substr(0, end);
}

void Parser::add_data_set(const std::string& name, const Object& object) {
  if (data_sets_.size() >= kMostDataSets) throw broken("too many data sets");
  Hdf5DataSet found{name, object.type, {}, -1};
  const auto label = attributes_.find({name, "dtype"});
  if (found.type == Hdf5Type::kU16 && label != attributes_.end() &&
      label->second == Hdf5Attribute("bfloat16")) {
    found.type = Hdf5Type::kBF16;
  }
  // Divisions, since products of hostile extents overflow.
  int64_t room = std::numeric_limits<int64_t>::max() / std::max<int64_t>(1, size_of(found.type));
  for (const uint64_t extent : object.extents) {
    if (extent > static_cast<uint64_t>(room)) {
      throw broken(join(name, " says that it has an extent of ", extent));
    }
    if (extent > 0) room /= static_cast<int64_t>(extent);
    found.shape.push_back(static_cast<int64_t>(extent));
  }
  const auto bytes = static_cast<uint64_t>(found.bytes());
  if (object.contiguous && !object.external && bytes == 0) {
    found.offset = 0;
  } else if (object.contiguous && !object.external && object.address != kNowhere) {
    const auto end = static_cast<uint64_t>(file_.size());
    if (object.address > end || bytes > end - object.address || bytes > object.bytes) {
      throw data_error(file_.path(), ": ", name, " says that it has ", bytes, " bytes from byte ",
                       object.address, " on, but the file ends at byte ", end,
                       ": it is truncated or damaged");
    }
    found.offset = static_cast<int64_t>(object.address);
  }
  data_sets_.push_back(std::move(found));
}

}  // namespace anabranch::hdf5
