"""Imported by verl itself, through VERL_USE_EXTERNAL_MODULES: its process can then do without a GPU."""

from dlrl_verl.cpu import prepare

prepare()
