"""The way to a Confluent-compatible schema registry: addresses, login, TLS, and what an answer means."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slotstream.schemas.errors import ConfigError, OutputSchemaRefused, RegistryUnavailable

__all__ = ["RegistryConfig", "RegistryConnection"]

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = (40401, 40402, 40403)
"""Error codes of an unknown subject, version and schema. A wrong address gives a 404 as well, without one of them."""


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
        return self

    @field_validator("urls")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            try:
                parsed = httpx.URL(url)
            except httpx.InvalidURL as error:
                raise ValueError(f"a registry's address is a URL ({error})") from None
            if parsed.userinfo:
                raise ValueError("a registry's login goes into username and password_file, not into its address")
            if parsed.scheme not in ("http", "https") or not parsed.host:
                raise ValueError(f"a registry's address starts with http:// or https://, got {url!r}")
        return urls


class RegistryConnection:
    """HTTP requests to one registry; thread-safe.

    Raises:
        ConfigError: a TLS file cannot be read.
    """

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        # trust_env: a proxy or a netrc comes from the configuration or not at all.
        self._client = httpx.Client(verify=_tls(config), timeout=config.timeout_ms / 1000, trust_env=False)

    def call(
        self, method: str, path: str, body: dict[str, str] | None = None, *, needs: str, subject: str | None = None
    ) -> dict[str, Any] | None:
        """The answer's JSON object, None when the registry says that it has no such schema, subject or version.

        Args:
            needs: a key that the answer must have.
            subject: whose rules the request is held against.

        Raises:
            OutputSchemaRefused: the registry refuses the schema (409, 422).
            ConfigError: it refuses our login, or a secret's file cannot be read.
            RegistryUnavailable: no address answers, or what answers is no registry.
        """
        answer = self._answer(method, path, None if body is None else json.dumps(body))
        try:
            found = answer.json()
        except ValueError:
            found = None
        found = found if isinstance(found, dict) else {}
        if answer.status_code == 404 and found.get("error_code") in _NOT_FOUND:
            return None
        told = f"HTTP {answer.status_code} {found.get('message', '')}".rstrip()
        if answer.status_code in (401, 403):
            raise ConfigError(f"the schema registry refuses us with {told}: check its login")
        if answer.status_code in (409, 422) and subject is not None:
            raise OutputSchemaRefused(f"subject {subject}: {told}")
        if not answer.is_success or needs not in found:
            raise RegistryUnavailable(
                f"the schema registry answers {method} {answer.request.url} with {told} and without {needs!r}: "
                f"is {answer.request.url.host} a registry, and its address the base of its API?"
            )
        return found

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()

    def _answer(self, method: str, path: str, content: str | None) -> httpx.Response:
        """Of the first address that answers with less than a server error."""
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"} | _authorization(self._config)
        if content is not None:
            headers["Content-Type"] = _MEDIA_TYPE
        failures = []
        for url in self._config.urls:
            try:
                answer = self._client.request(method, url.rstrip("/") + path, content=content, headers=headers)
            except httpx.HTTPError as error:
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
