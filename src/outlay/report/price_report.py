"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

# --- refresh ---


# --- compare ---


# --- history ---


# --- changes ---


# --- watch ---


# --- import ---


# --- what is installed, and which sources answer ---
