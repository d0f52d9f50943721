"""Carries plans out on Redis, Valkey and clusters."""
