"""The adapter asks what the harness asks, in the program's words, and gives the answers as the harness
expects them. The harness is a stand-in, and so is the program.

    python3 tests/launch/lm_eval_adapter_test.py
"""
import json
import pathlib
import runpy
import sys
import tempfile
import types

PROGRAM = """
import json, sys
verb, run, *words = sys.argv[1:]
assert (verb, run) == ("score", "a run"), sys.argv
options = dict(zip(words[0::2], words[1::2]))
answers = {
    "loglikelihood": lambda r: {"logprob": -float(len(r["continuation"])), "is_greedy": r["context"] == "yes"},
    "loglikelihood_rolling": lambda r: {"logprob": -float(len(r["text"]))},
    "generate_until": lambda r: {"text": "|".join([r["context"], str(r["max_tokens"]), *r["until"]])},
}
with open(options["--requests"]) as asked, open(options["--out"], "a") as out:
    for request in reversed([json.loads(line) for line in asked]):  # in any order
        print(json.dumps({"id": request["id"], **answers[request["type"]](request)}), file=out)
"""


def stand_in():
    """Modules of lm_eval with what the adapter imports."""
    model, registry = types.ModuleType("lm_eval.api.model"), types.ModuleType("lm_eval.api.registry")
    model.LM = type("LM", (), {})
    registry.register_model = lambda name: lambda made: made
    for module in (types.ModuleType("lm_eval"), types.ModuleType("lm_eval.api"), model, registry):
        sys.modules[module.__name__] = module


def main():
    stand_in()
    here = pathlib.Path(__file__).resolve()
    made = runpy.run_path(str(here.parents[2] / "launch" / "lm_eval_adapter.py"))["Anabranch"]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.py"
        program.write_text(PROGRAM)
        adapter = made(run="a run", program=f"{sys.executable} {program}", batch_size=1)
        ask = lambda *all: [types.SimpleNamespace(args=each) for each in all]
        assert adapter.loglikelihood(ask(("yes", "ab\u2028"), ("no", "c"))) == [(-3.0, True), (-1.0, False)]
        assert adapter.loglikelihood_rolling(ask(("text",), ("",))) == [-4.0, -0.0]
        said = adapter.generate_until(ask(("a", {"until": "x", "max_gen_toks": 3}), ("b", {"until": ["y", "z"]}), ("c", {})))
        assert said == ["a|3|x", "b|256|y|z", "c|256"], said
        assert adapter.loglikelihood([]) == []


main()
