"""lm-evaluation-harness on a run of any family: `anabranch score` answers what the harness asks.

    pip install lm_eval
    python launch/lm_eval_adapter.py --model anabranch --tasks lambada_openai \
        --model_args run=RUN,program=build/release/anabranch

model_args:  run      run directory or checkpoint
             program  the built program, after what starts ranks: "mpirun -np 2 build/release/anabranch"
             begin    true: every text follows the token that begins a document
             folder   where requests and answers are kept, so that a later attempt goes on from
                      them; default: a temporary folder
"""
import hashlib
import json
import pathlib
import shlex
import subprocess
import tempfile

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

GENERATED_TOKENS = 256  # where a task does not say, as the harness's other models have it


@register_model("anabranch")
class Anabranch(LM):
    def __init__(self, run, program="anabranch", begin=False, folder=None, **_):
        super().__init__()
        self.command = shlex.split(program) + ["score", str(run)]
        if str(begin).lower() == "true":
            self.command.append("--begin")
        self.temporary = None if folder else tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(folder or self.temporary.name)
        self.folder.mkdir(parents=True, exist_ok=True)

    def ask(self, requests):
        """Answers in the order of the requests."""
        if not requests:
            return []
        lines = "".join(json.dumps({"id": i, **each}) + "\n" for i, each in enumerate(requests))
        name = hashlib.sha256((lines + str(self.command)).encode()).hexdigest()[:16]
        asked, answered = (self.folder / f"{name}.{end}.jsonl" for end in ("requests", "answers"))
        asked.write_text(lines, encoding="utf-8")
        subprocess.run(
            self.command + ["--requests", str(asked), "--out", str(answered)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with answered.open(encoding="utf-8", newline="\n") as file:
            answers = {a["id"]: a for a in map(json.loads, file)}
        return [answers[i] for i in range(len(requests))]

    def loglikelihood(self, requests, disable_tqdm=False):
        pairs = ({"context": c, "continuation": t} for c, t in (r.args for r in requests))
        answers = self.ask([{"type": "loglikelihood", **pair} for pair in pairs])
        return [(a["logprob"], a["is_greedy"]) for a in answers]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        texts = (r.args[0] for r in requests)
        return [a["logprob"] for a in self.ask([{"type": "loglikelihood_rolling", "text": t} for t in texts])]

    def generate_until(self, requests, disable_tqdm=False):
        asked = []
        for context, how in (r.args for r in requests):
            until = how.get("until") or []
            most = how.get("max_gen_toks", GENERATED_TOKENS)
            until = [until] if isinstance(until, str) else list(until)
            asked.append({"type": "generate_until", "context": context, "until": until, "max_tokens": most})
        return [a["text"] for a in self.ask(asked)]


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
