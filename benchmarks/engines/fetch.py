"""The engines themselves: what PyPI has of Flink and Spark, and Beam's job servers."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from apache_beam.version import __version__ as beam_version

FLINK, SPARK = "apache-flink-libraries==1.20.3", "pyspark==3.5.7"
_JARS = {
    FLINK: ("--flink_job_server_jar", f"beam-runners-flink-1.20-job-server-{beam_version}.jar"),
    SPARK: ("--spark_job_server_jar", f"beam-runners-spark-3-job-server-{beam_version}.jar"),
}


def distribution(package: str, folder: Path) -> Path:
    """Downloads an engine, unless it is there already.

    Args:
      package: FLINK or SPARK, whose source archives hold the whole engine.
      folder: where it is kept.

    Returns:
      The folder with its jars in `lib` or `jars`.

    Raises:
      subprocess.CalledProcessError: pip failed; its messages are on standard error.
    """
    name = package.replace("==", "-")
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
            source = ["download", "--no-deps", "--no-binary=:all:", f"--dest={temporary}", package]
            subprocess.run([*pip, *source], check=True)
            [archive] = Path(temporary).glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(temporary, filter="data")
            (Path(temporary) / name).rename(folder / name)
    return folder / name / "deps"


def job_server_options(package: str, folder: Path | None) -> tuple[str, ...]:
    """Options that name the job server of an engine.

    Args:
      package: FLINK or SPARK.
      folder: where its jar lies; None lets Beam fetch it.

    Raises:
      FileNotFoundError: the folder lacks it.
    """
    if folder is None:
        return ()
    flag, jar = _JARS[package]
    if not (folder / jar).is_file():
        raise FileNotFoundError(
            f"{folder} has no {jar}: leave --job-servers out, and Beam fetches it"
        )
    return (f"{flag}={folder / jar}", "--job_server_jvm_property=-Xmx1g")
