#!/bin/sh
# Sends one text: send.sh NUMBER TEXT, with BASE_URL, API_KEY and API_TOKEN in the
# environment. POSIX sh and curl.
#
# Prints the messageId and exits with 0; 1: not sent; 2: called wrongly; 3: nobody
# knows whether it was sent. Optional: IDEMPOTENCY_KEY, ATTEMPTS (5), and in whole
# seconds MAX_WAIT between two attempts (60) and TIMEOUT of one (60).
set -u

usage() {
	echo "usage: BASE_URL=… API_KEY=… API_TOKEN=… send.sh NUMBER TEXT" >&2
	exit 2
}
case ${BASE_URL:-} in http://* | https://*) ;; *) usage ;; esac
if [ $# -ne 2 ] || [ -z "${API_KEY:-}" ] || [ -z "${API_TOKEN:-}" ]; then usage; fi

# escape makes its argument the inside of a JSON string (or of a quoted curl setting).
escape() {
	printf '%s' "$1" | LC_ALL=C awk '{
		gsub(/[\\"]/, "\\\\&")
		for (i = 1; i < 32; i++) gsub(sprintf("%c", i), sprintf("\\u%04x", i))
		printf "%s%s", between, $0
		between = "\\n"
	}'
}

# find prints what the parenthesis of a sed pattern matches in the answer. A name in
# quotes cannot be met inside of a string there, where quotes have a backslash.
find() { printf '%s\n' "$answer" | tr -d '\r' | sed -n "s/$1/\\1/p"; }

refused() {
	echo "not sent: $1" >&2
	exit 1
}

unknown() {
	echo "unknown whether it was sent: $1" >&2
	echo "IDEMPOTENCY_KEY=$key asks again and cannot send twice" >&2
	exit 3
}

# give_up is for an end that says nothing of the attempts before it: one of them may have
# sent the message.
give_up() {
	[ "$unanswered" = no ] || unknown "$1"
	refused "$1"
}

# Once for each message, before the first attempt. Keep it with the message, so that
# a script that starts again uses the same one.
key=${IDEMPOTENCY_KEY:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}
body="{\"number\":\"$(escape "$1")\",\"textMessage\":{\"text\":\"$(escape "$2")\"}}"
attempts=${ATTEMPTS:-5}
timeout=${TIMEOUT:-60} # longer than the longest options.delay you use
unanswered=no          # yes: an attempt ended so that it may have been the one that sent
attempt=1
ceiling=1
while :; do
	# The settings go through standard input, because every user of the machine can
	# read the arguments of a program.
	answer=$(curl --silent --show-error --include --max-time "$timeout" --write-out ' %{http_code}' --config - <<-END
		url = "${BASE_URL%/}/message/sendText/$API_TOKEN"
		header = "apikey: $(escape "$API_KEY")"
		header = "Content-Type: application/json"
		header = "Idempotency-Key: $key"
		data-binary = "$(escape "$body")"
	END
	)
	failed=$?
	status=${answer##* }
	id=$(find '^{"status":"success",.*"messageId":"\([^"]*\)".*')
	problem=$(find '^{"status":"error","message":"\(.*\)","error":{.*')
	code=$(find '^{"status":"error",.*"error":{"code":"\([a-z_]*\)".*')
	retryable=$(find '^{"status":"error",.*"retryable":\([a-z]*\).*')
	if [ -n "$id" ]; then
		echo "$id"
		exit 0
	fi
	case "$failed $status $retryable $code" in
	"0 "*" true "*) ;;
	"0 "*" false delivery_unknown" | "0 "*" false internal_error") unknown "$problem" ;;
	"0 "*" false unauthorized") give_up "$problem" ;;
	"0 "*" false "*) refused "$problem" ;;
	"0 2"* | "0 429 "* | "0 5"*) # of a proxy that does not know either
		problem="an answer $status that is not the service's"
		unanswered=yes
		;;
	"0 "*) give_up "an answer $status that is not the service's" ;;
	[567]" "*) problem="no connection" ;;
	*)
		problem="no answer"
		unanswered=yes
		;;
	esac
	[ "$attempt" -lt "$attempts" ] || break
	asked=$(find '^[Rr]etry-[Aa]fter: *0*\([1-9][0-9]\{0,5\}\)$')
	pause=$((${asked:-0} + $(od -An -N2 -tu2 /dev/urandom) % (ceiling + 1)))
	[ "$pause" -le "${MAX_WAIT:-60}" ] || pause=${MAX_WAIT:-60}
	sleep "$pause"
	attempt=$((attempt + 1))
	ceiling=$((ceiling * 2))
done
give_up "$problem ($attempts attempts)"
