#include "core/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "core/base/error.h"

namespace anabranch {

struct Log::Sinks {
  spdlog::logger logger{"anabranch"};
};

Log::Log(int rank, const std::string& file, bool to_terminal) : sinks_(std::make_unique<Sinks>()) {
  auto terminal = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  terminal->set_level(to_terminal ? spdlog::level::info : spdlog::level::warn);
  sinks_->logger.sinks().push_back(terminal);
  if (!file.empty()) {
    try {
      sinks_->logger.sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(file));
    } catch (const spdlog::spdlog_ex& failure) {
      throw io_error("cannot write the log ", file, ": ", failure.what());
    }
  }
  sinks_->logger.set_pattern("%Y-%m-%d %H:%M:%S.%e r" + std::to_string(rank) + " %L %v");
  sinks_->logger.flush_on(spdlog::level::warn);
}

Log::~Log() = default;

void Log::info(const std::string& line) { sinks_->logger.info("{}", line); }

void Log::warn(const std::string& line) { sinks_->logger.warn("{}", line); }

void Log::error(const std::string& line) { sinks_->logger.error("{}", line); }

void Log::flush() { sinks_->logger.flush(); }

}  // namespace anabranch
