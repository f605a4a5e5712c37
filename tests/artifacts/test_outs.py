"""Out models of the store: short trainings that are models like any other."""

import json

from regun.artifacts import Store
from regun.artifacts.setup import Setup
from regun.cli import main


def test_an_out_model_can_be_used_as_any_other_model_of_the_store(tmp_path, capsys) -> None:
    def call(*words: str) -> dict:
        assert main([*words, "--store", str(tmp_path), "--threads", "1", "--quiet", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    trained = call("train", "--data", "digits,limit=300,test_limit=50", "--recipe", "digits,epochs=4", "--val", "0.2")
    key, asked = trained["key"], ["--forget", "0.1", "--bootstrap", "20"]
    found = call("audit", key, *asked, "--out-models", "1")
    store = Store(tmp_path)
    base, out = store.load("model", key), store.load("model", found["models"]["outs"][0])
    assert (out.info["role"], out.info["out_of"], out.inputs["recipe"]["epochs"]) == ("out", key, 1)
    assert Setup.of(out).about() == Setup.of(base).about()
    assert call("audit", out.key, *asked)["models"]["target"] == out.key


def test_the_out_model_of_a_base_with_warm_up_warms_up_in_scale(tmp_path, capsys) -> None:
    def call(*words: str) -> dict:
        assert main([*words, "--store", str(tmp_path), "--threads", "1", "--quiet", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    recipe = "digits,epochs=8,warmup_epochs=4"
    trained = call("train", "--data", "digits,limit=300,test_limit=50", "--recipe", recipe, "--val", "0.2")
    found = call("audit", trained["key"], "--forget", "0.1", "--bootstrap", "20", "--out-models", "1")
    out = Store(tmp_path).load("model", found["models"]["outs"][0])
    assert (out.inputs["recipe"]["epochs"], out.inputs["recipe"]["warmup_epochs"]) == (2, 1)
