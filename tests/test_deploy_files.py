"""Dockerfile and docker-compose.yml, checked as far as reading them goes."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from hango import env

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
NOT_OURS = {"REMAP_SIGTERM"}  # Celery's own
INSTRUCTIONS = ["FROM", "RUN", "CMD", "EXPOSE", "ENV", "COPY", "VOLUME", "USER", "WORKDIR", "HEALTHCHECK"]
HEALTHY, DONE = {"condition": "service_healthy"}, {"condition": "service_completed_successfully"}


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def copied() -> list[str]:
    rests = [rest.split() for word, rest in dockerfile() if word == "COPY" and "--from" not in rest]
    return [source for rest in rests for source in rest[:-1]]


def test_the_services_are_there_and_wait_for_each_other():
    assert set(SERVICES) == {"postgres", "redis", "prepare", "web", "worker", "beat"}
    assert SERVICES["prepare"]["depends_on"] == {"postgres": HEALTHY}
    for name in ("web", "worker", "beat"):
        assert SERVICES[name]["depends_on"] == {"prepare": DONE, "redis": HEALTHY}
    assert all(SERVICES[name]["healthcheck"]["test"] for name in ("postgres", "redis"))


@pytest.mark.parametrize("name", ["prepare", "web", "worker", "beat"])
def test_every_variable_in_compose_is_a_setting(name):
    variables = set(SERVICES[name]["environment"]) - NOT_OURS
    known = set(env.REGISTRY) | {f"{known}_FILE" for known in env.REGISTRY}
    assert variables <= known
    assert {"HANGO_DATABASE_URL", "HANGO_REDIS_URL", "HANGO_SECRET_KEY"} <= variables


def test_every_volume_in_compose_is_declared():
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert used == set(COMPOSE["volumes"])


def test_stopping_takes_less_than_compose_grants():
    for name in ("web", "worker", "beat"):
        granted = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert int(SERVICES[name]["environment"]["HANGO_SHUTDOWN_S"]) < granted


def test_the_image_is_built_of_known_instructions_and_existing_files():
    words = [word for word, _ in dockerfile()]
    assert set(words) <= set(INSTRUCTIONS)
    assert words.count("FROM") == 2
    assert [source for source in copied() if not (ROOT / source).exists()] == []


def test_what_the_image_copies_is_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied()) == allowed


def test_the_image_runs_as_a_plain_user_and_is_asked_for_its_health():
    steps = dict(dockerfile())
    assert steps["USER"] == "hango"
    assert "/healthz" in steps["HEALTHCHECK"]
    assert shlex.split(steps["CMD"].strip("[]").replace(",", " ")) == ["python", "-m", "hango.run"]


def test_the_image_has_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert SERVICES["web"]["image"] == f"hango:{version}"


@pytest.mark.parametrize("name", ["dev.lock", "run.lock"])
def test_a_lock_pins_by_hash_and_names_no_address(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    pins = re.findall(r"^[a-z0-9._-]+==\S+.*$", text, flags=re.MULTILINE)
    assert len(pins) > 50
    assert all(pin.endswith("\\") for pin in pins)
