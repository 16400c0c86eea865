#!/bin/sh
# An example for --on-halt: mails what happened, and what to do about it, to the address that is its argument.
#
#   storage-consumer run … --on-halt 'conf/on-halt.sh oncall@example.com'
#
# The document is on standard input; this needs only its main fields, which are in the environment.
set -eu

case "$STORAGE_CONSUMER_ALERT_EVENT" in
took_over) exit 0 ;; # good to know, but nothing to do
esac

mail -s "$STORAGE_CONSUMER_ALERT_EVENT on $STORAGE_CONSUMER_ALERT_HOST" "$1" <<END
$STORAGE_CONSUMER_ALERT_TEXT

$STORAGE_CONSUMER_ALERT_NEXT_STEP
END
