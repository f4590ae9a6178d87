// A file of requests answered into a file of answers, by any number of ranks, in any number of
// attempts.
#pragma once

#include <functional>
#include <string>

#include "parallel/comm/group.h"
#include "runtime/evaluation/answers.h"

namespace anabranch {

struct AnswerFileOptions {
  AnswerOptions answers;
  int64_t part_bytes = 0;  // of requests and of what they generate that a rank answers between two
                           // writes; 0: as much as fills some batches
};

struct AnswerFileCounts {
  int64_t requests = 0;
  int64_t kept = 0;    // answered by an attempt before
  int64_t tokens = 0;  // scored or generated now
};

// Appends a line to `out` for each request that it does not answer yet, in the order asked:
//
//   {"id": 1, "logprob": -3.25, "is_greedy": false, "tokens": 2, "of": "..."}   loglikelihood
//   {"id": "b", "logprob": -40.5, "tokens": 9, "of": "..."} loglikelihood_rolling
//   {"id": 3, "text": " 2", "tokens": 2, "of": "..."}                           generate_until
//
// `of` stands for request and model: 16 digits of a SHA-256. Lines of `out` appear whole, but that
// an attempt was killed: then its last, which has no end, is taken away. Rank 0 reads and writes
// `out`, under a lock; all ranks read the requests and have the counts.
//
//   model_name  what tells the model from others: some text of its checkpoint
//   progress    told how many requests are answered
//
// Throws Error (config) as check_causal() does; (data) as read_requests() and Answerer do, before
// anything is written, and if a line of `out` answers none of these requests of this model; (I/O)
// if `out` cannot be written or is being written by another process.
AnswerFileCounts answer_file(const std::string& requests, const std::string& out, Model& model,
                             const Tokenizer& tokenizer, const std::string& model_name,
                             Group& world, const AnswerFileOptions& options,
                             const std::function<void(size_t done, size_t all)>& progress = {});

}  // namespace anabranch
