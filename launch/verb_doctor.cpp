#include <algorithm>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "launch/cuda_part.h"
#include "launch/doctor.h"
#include "launch/program.h"
#include "parallel/topology.h"
#include "runtime/config/config.h"
#include "runtime/config/validate.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {

namespace {

struct DoctorWish {
  std::string config, folder = ".";
  std::vector<std::string> sets;
  bool json = false;
};

void print(const std::vector<Finding>& findings, bool json) {
  if (json) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const Finding& finding : findings) {
      document[finding.name] = {{"good", finding.good}, {"what", finding.what}};
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  for (const Finding& finding : findings) {
    std::cout << (finding.good ? "  ok    " : "  BAD   ") << finding.name << ": " << finding.what
              << "\n";
  }
}

int code_of(const std::vector<Finding>& findings) {
  const auto bad = std::ranges::find(findings, false, &Finding::good);
  return bad == findings.end() ? 0 : static_cast<int>(bad->fault);
}

// Where the run would compute, or why it cannot; equal on all ranks.
Finding take_device(const Config& config, RankProcess& process) {
  try {
    process.take_device(device_wish(config));
    return {"device", true, process.devices().text()};
  } catch (const Error& error) {
    if (error.fault() != Fault::kConfig) throw;
    return {"device", false, error.what(), error.fault()};
  }
}

// The exit code is that of the first finding that is not good, on all ranks.
int examine(DoctorWish wish, RankProcess& process) {
  std::vector<Finding> findings;
  for (const std::string& line : build_lines()) findings.push_back({"build", true, line});
  bool wants_gpu = gpu_is_demanded();
  if (!wish.config.empty()) {
    const Config config = load_config(wish.config, wish.sets);
    validate(config);
    check_ranks(config, process.world().size());
    wants_gpu = wants_gpu || config.device == DeviceChoice::kCuda;
    findings.push_back(take_device(config, process));
    wish.folder = nearest_folder(config.run.dir);
  }
  wish.folder = gather_text(process.world(), wish.folder)[0];
  const std::vector<Finding> mine = examine_host(wish.folder, wants_gpu);
  findings.insert(findings.end(), mine.begin(), mine.end());
  findings.push_back(time_left());
  if (process.world().size() == 1) {
    findings.push_back({"ranks", true, "one; start under mpirun or srun for more"});
  } else {
    const std::vector<Finding> together = examine_ranks(process, wish.folder, mine);
    findings.insert(findings.end(), together.begin(), together.end());
  }
  if (process.first()) print(findings, wish.json);
  return std::stoi(gather_text(process.world(), std::to_string(code_of(findings)))[0]);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto wish = std::make_shared<DoctorWish>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "checks this machine, or under mpirun or srun all that a job was given");
  CLI::Option* config = verb->add_option(
      "CONFIG", wish->config, "YAML file of the run to come: its folder, devices, ranks");
  verb->add_option("--set", wish->sets, "a.b=c: overrides a key of CONFIG")
      ->allow_extra_args(false)
      ->needs(config);
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->add_option("--dir", wish->folder, "folder that runs are to be written to");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return examine(*wish, process); });
  });
}

}  // namespace anabranch
