"""Commands on a fake accelerator: what a run stores, and the device in its manifest."""

import json
from pathlib import Path

import pytest

from devices.fake_device import DEVICE, fake_device
from regun.cli import main


@pytest.mark.usefixtures("plain_surroundings")
def test_train_unlearn_and_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--store", str(tmp_path), "--device", str(DEVICE), "--quiet"]
    model = ["--model", "cnn,width=4", "--recipe", "digits,epochs=1,batch_size=256"]

    def key_of(*command: str) -> str:
        capsys.readouterr()
        assert main([*command, *place, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["key"]

    with fake_device():
        base = key_of("train", *model)
        made = key_of("unlearn", "--base", base, "--forget", "0.05", "--method", "regun,epochs=1,batch_size=64")
        assert main(["audit", made, "--bootstrap", "50", *place]) == 0
    manifests = [json.loads(path.read_text()) for path in tmp_path.rglob("manifest.json")]
    made = {m["info"]["role"]: m["info"] for m in manifests if "device" in m["info"]}
    assert {"base", "unlearned"} <= set(made)
    assert {info["device"] for info in made.values()} == {str(DEVICE)}
