/* help_topics.h: the manual pages that are not those of commands, as `fsdpck help TOPIC` opens them. */
#ifndef FSDPCK_CLI_HELP_TOPICS_H
#define FSDPCK_CLI_HELP_TOPICS_H

#include "cmd.h"

typedef struct help_topic {
    const char *name, *page, *section, *summary;
} help_topic;

/* Ends with a NULL name. */
extern const help_topic help_topics[];

const help_topic *help_topic_find(const char *word);

/* Starts man(1) in place of this process. Returns only if that fails: the exit code, after the message. */
int help_topic_open(const cli *c, const help_topic *topic);

#endif
