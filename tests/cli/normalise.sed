# Figures that differ from run to run, in reports and in JSON.
s/"seconds":[ \t]*[0-9][0-9.e+-]*/"seconds": SECONDS/g
s/"peak_rss":[ \t]*[0-9][0-9]*/"peak_rss": BYTES/g
# Whether the file system takes O_DIRECT.
s/"bytes_written_direct":[ \t]*[0-9][0-9]*/"bytes_written_direct": BYTES/g
s/\bin [0-9][0-9.]* s\b/in SECONDS s/g
s/([0-9][0-9.]* \([kKMGT]i\?\)\?B\/s)/(RATE)/g
s/([0-9][0-9.]* bytes\/s)/(RATE)/g
