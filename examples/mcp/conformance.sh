#!/usr/bin/env bash
#
# Lets MCP's conformance suite drive cmd/everything-client:
#
#	conformance.sh DIRECTORY [RUNS]
#
# DIRECTORY is where npm has installed the suite and a Node that it runs on. RUNS is
# how often the scenario about timing, sse-retry, is run; 1 if not given. A check that
# fails or warns ends the script with status 1.
set -euo pipefail

directory=$1
runs=${2:-1}
cd "$(dirname "${BASH_SOURCE[0]}")"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/everything-client" ./cmd/everything-client

scenario() {
	if ! "$directory/node_modules/node/bin/node" \
		"$directory/node_modules/@modelcontextprotocol/conformance/dist/index.js" \
		client --command "$work/everything-client" --scenario "$1" --verbose >"$work/output" 2>&1; then
		cat "$work/output"
		echo "FAILED: $1"
		exit 1
	fi
	# The suite's own verdict counts a warning as a failure; this line is for the reader.
	echo "$1: $(grep -o 'Passed: .*' "$work/output")$(sed -n 's/.*"actualDelayMs": \([0-9]*\).*/, reconnected after \1 ms/p' "$work/output")"
}

scenario initialize
scenario tools_call
scenario elicitation-sep1034-client-defaults
for ((i = 0; i < runs; i++)); do
	scenario sse-retry
done
