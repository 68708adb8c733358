"""Shim of the former import path of `editloupe.servers.mcp`."""

from editloupe.servers.mcp import create_server as create_server
