// A sweep's report as one HTML page: no scripts, nothing fetched, light and dark, for phones and
// paper too.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/line_plot.h"
#include "runtime/report/report_table.h"

namespace anabranch {

// Drawings under one heading.
struct PageSection {
  std::string title, note;
  std::vector<NamedDrawing> drawings;  // of which ids differ over the page
};

// Well-formed XML after its first line. Tables come first.
std::string report_page(const std::string& title, const std::vector<std::string>& head,
                        const std::vector<ReportTable>& tables,
                        const std::vector<PageSection>& sections);

}  // namespace anabranch
