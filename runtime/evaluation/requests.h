// What lm-evaluation-harness asks of a model, as JSON lines:
//
//   {"id": 1, "type": "loglikelihood", "context": "Rome is in", "continuation": " Italy"}
//   {"id": "b", "type": "loglikelihood_rolling", "text": "A whole text."}
//   {"id": 3, "type": "generate_until", "context": "Q: 1 + 1\nA:", "until": ["\n"], "max_tokens":
//   8}
//
// Source: lm_eval.api.model.LM and models/huggingface.py of lm-evaluation-harness 0.4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anabranch {

enum class RequestType : uint8_t { kLoglikelihood, kRolling, kGenerateUntil };

struct Request {
  std::string id;  // as JSON: 1 or "b"
  RequestType type{};
  std::string context;             // what comes before; of a rolling one empty
  std::string text;                // what is scored: the continuation, or the whole text
  std::vector<std::string> until;  // texts that end what is generated
  int64_t max_tokens = 0;          // that are generated
  std::string line;                // as it stands in the file
  std::string where;               // "file:7", for messages
};

// Reads all of them. Other keys are passed over, and so are empty lines. Throws Error (data) that
// names file and line: no JSON in UTF-8, no such type, a field that is missing or of the wrong
// type, an id twice, a continuation that is empty, a line of more than 16 MiB.
std::vector<Request> read_requests(const std::string& path);

}  // namespace anabranch
