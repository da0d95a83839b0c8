#!/bin/sh
# A test suite against the real service, in its own process, on a free port, without
# any account: copy the parts. MESSAGESENDER names the binary; sh and curl are needed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
export API_KEY=key-of-the-test-suite API_TOKEN=token_of_the_test_suite

# Start. The first line on standard output says where; it comes when requests are
# served, and the pipe ends without it when the service cannot start.
dir=$(mktemp -d)
mkfifo "$dir/stdout"
"${MESSAGESENDER:-messagesender}" -addr 127.0.0.1:0 -data "$dir/data" >"$dir/stdout" 2>"$dir/log" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
exec 3<"$dir/stdout"
read -r line <&3 || { cat "$dir/log" >&2; exit 1; }
export BASE_URL="${line#listening on }"

# The application under test; here it is the program beside this one.
application() { "$here/send.sh" "$@"; }

# outbox prints the messages to a number, as soon as there is one and at the latest
# after WAIT.
outbox() {
	curl --silent --show-error --fail -H "apikey: $API_KEY" "$BASE_URL/outbox/messages?number=$1&wait=$2"
}

failed=0
check() { # WHAT GOT PATTERN
	case $2 in
	*$3*) echo "ok: $1" ;;
	*)
		echo "FAILED: $1: got $2, want $3"
		failed=1
		;;
	esac
}

# A number for each test keeps the tests apart, also when they run at the same time.
application 15550000001 'Your parcel is on its way' >/dev/null &
sent=$!
check "the customer is told" "$(outbox 15550000001 5s)" '"text":"Your parcel is on its way"'
wait "$sent"

# Numbers under 999 fail on purpose.
status=0
application 9990000422 'Your parcel is on its way' 2>/dev/null || status=$?
check "a customer who cannot be reached is noticed" "$status" 1
check "and nothing was sent" "$(outbox 9990000422 0s)" '"messages":[]'

exit "$failed"
