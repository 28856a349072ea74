"""Hugging Face transformers: a model that trains hands its layers a cache of keys and values, which each attention
fills and reads within its own call. No tensor goes by it from one module to another that is not recorded."""

from typing import Any

MODULE = "transformers.cache_utils"


def is_by_product(value: Any) -> bool:
    """Whether what `value` holds is made and used within one module."""
    return any(base.__module__ == MODULE and base.__name__ == "Cache" for base in type(value).__mro__)
