"""As much of pydantic-settings as the SDK's example needs, which is given no environment here."""

from pydantic import BaseModel as BaseSettings
from pydantic import ConfigDict


def SettingsConfigDict(env_prefix: str) -> ConfigDict:  # noqa: N802 - its name there
    return ConfigDict()


__all__ = ["BaseSettings", "SettingsConfigDict"]
