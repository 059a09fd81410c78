"""The help of all commands and benchmarks fits 80 columns and names each option once."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forked import ROOT, ForkedProgram
from tests.support.processes import own_lines

COMMANDS = {
    "beam_jobs.build": "apache_beam",
    "beam_jobs.compact": "apache_beam",
    "beam_jobs.compare": "apache_beam",
    "beam_jobs.forget": "apache_beam",
    "beam_jobs.predict": "apache_beam",
    "beam_jobs.verify": "apache_beam",
    "pipeline.augment_sheet": "tensorflow",
    "pipeline.data_service": "tensorflow",
    "pipeline.explain": "tensorflow",
    "pipeline.export": "tensorflow",
    "pipeline.predict": "tensorflow",
    "pipeline.search": "optuna",
    "pipeline.show": "tensorflow",
    "pipeline.train": "tensorflow",
}
# Each with the package that its help needs; what it needs to run may be more.
BENCHMARKS = {
    "benchmarks.append_cost": "apache_beam",
    "benchmarks.backup_workers": "psutil",
    "benchmarks.buckets": "tensorflow",
    "benchmarks.build_scale": "apache_beam",
    "benchmarks.build_throughput": "psutil",
    "benchmarks.deal_scale": "psutil",
    "benchmarks.engines": "apache_beam",
    "benchmarks.found_layouts": "apache_beam",
    "benchmarks.input_throughput": "tensorflow",
    "benchmarks.interop": "numpy",
    "benchmarks.interop.dali": "nvidia.dali",
    "benchmarks.interop.samples": "numpy",
    "benchmarks.interop.tfds": "tensorflow_datasets",
    "benchmarks.interop.tfdv": "tensorflow_data_validation",
    "benchmarks.interop.torch_grain": "psutil",
    "benchmarks.near_duplicates": "apache_beam",
    "benchmarks.peers": "tensorflow",
    "benchmarks.plan_scale": "numpy",
    "benchmarks.predict_throughput": "numpy",
    "benchmarks.rare_layouts": "apache_beam",
    "benchmarks.receipts": "numpy",
    "benchmarks.resume_latency": "tensorflow",
    "benchmarks.row_decoding": "tensorflow",
    "benchmarks.saturation": "tensorflow",
    "benchmarks.scaling": "psutil",
    "benchmarks.search_scaling": "optuna",
    "benchmarks.strategies": "matplotlib",
    "benchmarks.warm_start": "tensorflow",
}


def commands_of(package: str) -> Iterator[str]:
    """The modules at the root of a package that have a `main`, and run it as a program."""
    for path in sorted((ROOT / package).glob("*.py")):
        statements = ast.parse(path.read_text()).body
        has_main = any(
            isinstance(each, ast.FunctionDef) and each.name == "main" for each in statements
        )
        guards = [
            each
            for each in statements
            if isinstance(each, ast.If) and ast.unparse(each.test) == "__name__ == '__main__'"
        ]
        if has_main and any(
            re.search(r"run_(program|command)\(", ast.unparse(each)) for each in guards
        ):
            yield f"{package}.{path.stem}"


def test_no_command_is_forgotten() -> None:
    commands = {*commands_of("beam_jobs"), *commands_of("pipeline")}
    assert len(commands) > 10
    assert commands == COMMANDS.keys()
    reference = (ROOT / "docs/reference/commands.md").read_text()
    assert sorted(re.findall(r"^## (\S+)$", reference, re.MULTILINE)) == sorted(commands)
    shown = re.findall(r"^```\{command-output\} python -m (\S+) --help$", reference, re.MULTILINE)
    assert sorted(shown) == sorted(commands)


def help_of(command: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    pytest.importorskip(COMMANDS[command])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(command).main([*options, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(checked_flags(command, help_of(command, capsys))) > 2


def checked_flags(command: str, text: str) -> set[str]:
    """Checks a help, and returns the options that it names."""
    assert text.startswith(f"usage: python -m {command} ")
    assert max(map(len, text.splitlines())) <= 80
    options = re.split(r"\n\w[\w ]*:\n", text)[1:]
    entries = re.findall(
        r"^  (?:-h, )?(--[\w.-]+)(.*(?:\n {4,}.*)*)", "\n".join(options), re.MULTILINE
    )
    flags = Counter(flag for flag, _ in entries if "…" not in flag)
    assert flags
    assert set(flags.values()) == {1}
    for flag, entry in entries:
        assert re.search(r"[a-z]{3}", entry), f"{flag} has no help"
        words = " ".join(entry.split())
        if words.endswith("(default: None)"):
            assert words.count("None") > 1, f"{flag} does not say what None means"
    assert "`" not in text
    assert "%(" not in text
    return {*flags}


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_help_of_a_benchmark(
    benchmark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(BENCHMARKS[benchmark])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    output, errors = tmp_path / "output", tmp_path / "errors"
    assert ForkedProgram([benchmark, "--help"], output=output, errors=errors).wait() == 0
    assert own_lines(errors.read_text()) == []
    assert "--help" in checked_flags(benchmark, output.read_text())


def test_no_benchmark_is_forgotten() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in (ROOT / "benchmarks").rglob("*.py")
        if re.search(r'benchmark_parser\(\s*"', path.read_text())
    }
    assert found == BENCHMARKS.keys()


@pytest.mark.parametrize("command", ["pipeline.explain", "pipeline.train"])
@pytest.mark.parametrize("flag", ["--balance-alpha ALPHA", "--global-batch-size RECORDS"])
def test_the_same_thing_has_the_same_flag(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flag in help_of(command, capsys)


def test_help_lists_the_options_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("pipeline.train", capsys, "--task=pipeline.tasks.text_detector:TextDetector")
    assert "options of pipeline.tasks.text_detector:TextDetector:" in text
    assert "--model.filters N" in text
    assert "a multiple of 8" in text
    text = help_of("pipeline.train", capsys, "--task=nowhere:Task")
    assert "task 'nowhere:Task' can't be found" in text
