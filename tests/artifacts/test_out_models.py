"""Out-of-sample models: short trainings on the retain set, made once, equal to a retraining from the same seed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regun.artifacts import Store
from regun.artifacts.out_models import OutModel, out_model_predictions, predictions_from_true_log_prob
from regun.cli import main
from regun.data.registry import DataSpec, load_data
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.models import ModelSpec, build_model
from regun.predict import predict
from regun.settings import to_json
from regun.splits import make_splits, reserve
from regun.training.job import Job, private_copy
from regun.training.recipes import RECIPES, shorten
from regun.unlearning import unlearn_job

CPU = torch.device("cpu")


def test_the_predictions_are_those_of_a_retrained_model_and_are_made_once(tmp_path: Path) -> None:
    data = load_data(DataSpec.read("digits", {"limit": "300"}), "digits").train
    splits = make_splits(data.labels, ForgetSpec.random(0.1), reserve(data.labels, 0))
    recipe = shorten(RECIPES["digits"], 0.05)
    model = build_model(ModelSpec("cnn", {}), data.num_classes, (1, 8, 8), 0)
    out = OutModel(model=model, examples=data, retain=splits.retain, recipe=recipe, seed=5)
    sets = {"forget": (data, splits.forget), "val": (data, splits.val)}
    store = Store(tmp_path)
    found = out_model_predictions(out, sets, store, CPU)
    retrain = get_method("retrain")
    job = Job(model=private_copy(model, CPU), examples=data, splits=splits, seed=5, device=CPU)
    outcome = unlearn_job(job, retrain, retrain.configure(to_json(recipe)), guard=False)
    for name, (examples, rows) in sets.items():
        expected = predict(outcome.model, examples, rows, CPU)
        np.testing.assert_array_equal(found.predictions[name].true_log_prob, expected.true_log_prob)
        np.testing.assert_allclose(found.predictions[name].true_logit, expected.true_logit, rtol=1e-6)
    assert found.cost.steps == outcome.cost.steps
    assert out_model_predictions(out, sets, store, CPU).cost.seconds == found.cost.seconds


def test_the_other_classes_share_what_the_true_label_leaves() -> None:
    said = predictions_from_true_log_prob(np.log([0.7, 1.0]), np.array([1, 0]), 4)
    assert np.exp(said.log_probs) == pytest.approx(np.array([[0.1, 0.7, 0.1, 0.1], [1.0, 0.0, 0.0, 0.0]]))


def test_an_audit_trains_them_by_the_recipe_of_the_base_with_its_warm_up_in_scale(tmp_path, capsys) -> None:
    def call(*words: str) -> dict:
        assert main([*words, "--store", str(tmp_path), "--threads", "1", "--quiet", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    recipe = "digits,epochs=4,warmup_epochs=2"
    trained = call("train", "--data", "digits,limit=300,test_limit=50", "--recipe", recipe, "--split", "val=0.2")
    found = call("audit", trained["key"], "--forget", "0.1", "--bootstrap", "20", "--out-models", "1")
    out = Store(tmp_path).load("out_model", found["models"]["out_models"][0])
    assert (out.inputs["recipe"]["epochs"], out.inputs["recipe"]["warmup_epochs"]) == (1, 0)
