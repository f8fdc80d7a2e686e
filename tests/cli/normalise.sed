# Figures that differ from run to run, in reports and in JSON.
s/"seconds": *[0-9][0-9.e+-]*/"seconds": SECONDS/g
s/"peak_rss": *[0-9][0-9]*/"peak_rss": BYTES/g
s/\bin [0-9][0-9.]* s\b/in SECONDS s/g
s|[0-9][0-9.]* [KMGT]\?i\?B/s|RATE|g
