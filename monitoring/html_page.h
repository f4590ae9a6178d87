// An HTML page in the making, well-formed as XML too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "monitoring/metrics.h"

namespace anabranch {

class HtmlPage {
 public:
  // Heading and navigation.
  //
  //   path  of this page
  //   live  attributes of what is exchanged when the page is shown anew: "data-step=\"3\""
  HtmlPage(const Labels& info, std::string_view path, std::string_view live);

  void heading(std::string_view text);

  struct Tile {
    std::string name, value, note;
  };

  void tiles(const std::vector<Tile>& tiles);
  void progress(double part);
  void charts(const std::vector<std::string>& drawings);
  // The first row and the first column are headings.
  void table(const std::vector<std::vector<std::string>>& rows);

  [[nodiscard]] std::string text() const;

 private:
  std::string text_;
};

}  // namespace anabranch
