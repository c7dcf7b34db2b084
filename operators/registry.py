"""A client of a Confluent-compatible schema registry: what the codec and `check` need of it, and no more.

The address is the API's base: Confluent's own root, or Apicurio's `/apis/ccompat/v7`. A schema never changes under its
id, so what is found is kept for ever; what is not found is asked again after seconds.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ConfigDict, Field, model_validator

from slotstream.schemas.errors import ConfigError, DecodeError, OutputSchemaRefused, RegistryUnavailable

__all__ = ["RegisteredSchema", "Registry", "RegistryConfig", "SchemaRegistry", "shared_registry"]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry holds it. references: the schemas that it names, each once, those they name first."""

    id: int
    text: str
    references: tuple[str, ...] = ()


@runtime_checkable
class SchemaRegistry(Protocol):
    """Where input schemas come from and output schemas go; thread-safe."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raises DecodeError `schema_not_found` or `schema_not_avro`, RegistryUnavailable."""
        ...

    def register(self, subject: str, text: str) -> int:
        """The id of `text` under `subject`, new or known. Raises OutputSchemaRefused, RegistryUnavailable."""
        ...


class RegistryConfig(BaseModel):
    """How a schema registry is reached. Secrets come from files, read at each request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: tuple[str, ...] = Field(min_length=1, description="Base addresses of the API, tried in order.")
    username: str | None = Field(None, description="User of basic authentication.")
    password_file: Path | None = Field(None, description="File that holds that user's password.")
    token_file: Path | None = Field(None, description="File that holds a bearer token.")
    ca_file: Path | None = Field(None, description="PEM file of the authorities to trust; default is the system's.")
    client_cert_file: Path | None = Field(None, description="PEM file of our certificate, for mutual TLS.")
    client_key_file: Path | None = Field(None, description="PEM file of its key, when it is not in the same file.")
    timeout_ms: int = Field(5_000, gt=0, description="Longest wait for one answer.")
    not_found_wait_ms: int = Field(500, ge=0, description="Pause before an unknown schema id is asked for once more.")
    not_found_cache_s: float = Field(10.0, ge=0, description="How long an unknown schema id is not asked for again.")
    auto_register: bool = Field(True, description="Register output schemas; otherwise they must be there already.")

    @model_validator(mode="after")
    def _one_way_to_log_in(self) -> Self:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("basic authentication takes both username and password_file")
        if self.username is not None and self.token_file is not None:
            raise ValueError("either username and password_file, or token_file")
        if bad := [url for url in self.urls if not url.startswith(("http://", "https://"))]:
            raise ValueError(f"a registry's address starts with http:// or https://, got {bad[0]!r}")
        return self


class Registry:
    """The HTTP client. One a process is enough: see `shared_registry`.

    Args:
        clock: seconds, monotonic.  sleep: waits for seconds.

    Raises:
        ConfigError: a TLS file cannot be read.
    """

    def __init__(
        self,
        config: RegistryConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._clock = clock
        self._sleep = sleep
        # trust_env: a proxy or a netrc comes from the configuration or not at all.
        self._client = httpx.Client(verify=_tls(config), timeout=config.timeout_ms / 1000, trust_env=False)
        self._lock = threading.Lock()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._missing: dict[int, tuple[float, DecodeError]] = {}
        self._registered: dict[tuple[str, str], int] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id, with the schemas it refers to.

        Raises:
            DecodeError: `schema_not_found`, also after a second try; `schema_not_avro`.
            RegistryUnavailable: no address answers.
        """
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            if schema_id not in self._schemas:
                self._schemas[schema_id] = self._fetch(schema_id)
            return self._schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject, None when there is none.

        Raises:
            DecodeError: `schema_not_avro`.  RegistryUnavailable: no address answers.
        """
        answer = self._call("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if answer.status_code == 404 else self._registered_schema(self._body(answer))

    def register(self, subject: str, text: str) -> int:
        """The id of `text` under `subject`; with `auto_register` off it is only looked up.

        Raises:
            OutputSchemaRefused: it breaks the subject's compatibility rule, is invalid there, or is not there.
            RegistryUnavailable: no address answers.
        """
        with self._lock:
            if (subject, text) not in self._registered:
                self._registered[subject, text] = self._register(subject, text)
            return self._registered[subject, text]

    def incompatibilities(self, subject: str, text: str) -> list[str]:
        """What the registry has against `text` as the next schema of `subject`; empty when it would be taken.

        Raises:
            OutputSchemaRefused: the registry cannot read the schema.  RegistryUnavailable: no address answers.
        """
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        answer = self._call("POST", path, {"schema": text})
        if answer.status_code == 404:  # no subject, so nothing to be compatible with
            return []
        body = self._body(answer, refused=f"subject {subject}")
        if body.get("is_compatible"):
            return []
        return [str(message) for message in body.get("messages") or ["the schema is incompatible"]]

    def close(self) -> None:
        self._client.close()

    def _fetch(self, schema_id: int) -> RegisteredSchema:
        until, error = self._missing.get(schema_id, (0.0, None))
        if error is not None and self._clock() < until:
            raise DecodeError(str(error), code=error.code)
        answer = self._call("GET", f"/schemas/ids/{schema_id}")
        if answer.status_code == 404:  # a producer may be ahead of a registry's replica
            self._sleep(self._config.not_found_wait_ms / 1000)
            answer = self._call("GET", f"/schemas/ids/{schema_id}")
        if answer.status_code == 404:
            missing = DecodeError(f"the registry knows no schema with id {schema_id}", code="schema_not_found")
            self._missing[schema_id] = (self._clock() + self._config.not_found_cache_s, missing)
            raise missing
        return self._registered_schema({**self._body(answer), "id": schema_id})

    def _registered_schema(self, body: dict[str, Any]) -> RegisteredSchema:
        if (kind := body.get("schemaType") or "AVRO") != "AVRO":
            raise DecodeError(f"schema {body.get('id')} is {kind}, not Avro", code="schema_not_avro")
        texts: dict[tuple[str, int], str] = {}
        self._follow(body, texts)
        return RegisteredSchema(int(body["id"]), str(body["schema"]), tuple(texts.values()))

    def _follow(self, body: dict[str, Any], texts: dict[tuple[str, int], str]) -> None:
        """Collect the schemas that `body` refers to, depth first, each once."""
        for reference in body.get("references") or ():
            key = (str(reference["subject"]), int(reference["version"]))
            if key in texts:
                continue
            answer = self._call("GET", f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}")
            if answer.status_code == 404:
                raise DecodeError(f"schema reference {key[0]} version {key[1]} is not there", code="schema_not_found")
            referred = self._body(answer)
            texts[key] = ""  # a circle ends here
            self._follow(referred, texts)
            del texts[key]
            texts[key] = str(referred["schema"])

    def _register(self, subject: str, text: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        if self._config.auto_register:
            answer = self._call("POST", path + "/versions", {"schema": text})
        else:
            answer = self._call("POST", path, {"schema": text})
            if answer.status_code == 404:
                raise OutputSchemaRefused(
                    f"subject {subject} does not hold the output schema and auto_register is off; register this: {text}"
                )
        return int(self._body(answer, refused=f"subject {subject}")["id"])

    def _body(self, answer: httpx.Response, *, refused: str | None = None) -> dict[str, Any]:
        """The answer's JSON object; a status of 4xx is the caller's fault."""
        try:
            body = answer.json()
        except ValueError:
            body = None
        message = body.get("message", "") if isinstance(body, dict) else ""
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"the schema registry refuses us with HTTP {answer.status_code} {message}: check its login"
            )
        if answer.is_client_error and refused:
            raise OutputSchemaRefused(f"{refused}: HTTP {answer.status_code} {message}")
        if not answer.is_success or not isinstance(body, dict):
            raise RegistryUnavailable(
                f"the schema registry answers {answer.request.method} {answer.request.url.path} "
                f"with HTTP {answer.status_code} {message or 'and no JSON object'}"
            )
        return body

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> httpx.Response:
        """The first address that answers with less than a server error."""
        content = None if body is None else json.dumps(body)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"} | _authorization(self._config)
        if content is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        failures = []
        for url in self._config.urls:
            try:
                answer = self._client.request(method, url.rstrip("/") + path, content=content, headers=headers)
            except httpx.TransportError as error:
                failures.append(f"{url}: {type(error).__name__} {error}".rstrip())
                continue
            if answer.status_code < 500 and answer.status_code not in (408, 429):
                return answer
            failures.append(f"{url}: HTTP {answer.status_code}")
        raise RegistryUnavailable(f"no schema registry answers {method} {path}: {'; '.join(failures)}")


def _tls(config: RegistryConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.client_cert_file:
            context.load_cert_chain(config.client_cert_file, config.client_key_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"a TLS file of the schema registry cannot be used: {error}") from error
    return context


def _authorization(config: RegistryConfig) -> dict[str, str]:
    if config.token_file:
        return {"Authorization": f"Bearer {_secret(config.token_file)}"}
    if config.username is not None and config.password_file:
        login = f"{config.username}:{_secret(config.password_file)}".encode()
        return {"Authorization": "Basic " + base64.b64encode(login).decode()}
    return {}


def _secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the schema registry's secret file {path} cannot be read: {error}") from None


@lru_cache(maxsize=8)
def shared_registry(config: RegistryConfig) -> Registry:
    """The process's client of one registry."""
    return Registry(config)
