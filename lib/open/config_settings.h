/* config_settings.h: settings of config.json that change what a model computes, but not its shapes.
 *
 *     config_settings s;
 *     RETURN_IF(config_settings_read(&config, &s, err));
 *     if (s.is_read) ... config_settings_number(&s, "head_dim"), config_settings_of(&s, i) ...
 */
#ifndef FSDPCK_OPEN_CONFIG_SETTINGS_H
#define FSDPCK_OPEN_CONFIG_SETTINGS_H

#include "base/json.h"
#include "open/model_config.h"

#define CONFIG_SETTINGS_MAX 64u

typedef struct config_setting {
    json_kind kind; /* JSON_END: absent, or not compared */
    uint64_t u64;   /* 0: no such number */
    double number;
    char text[48]; /* as written */
} config_setting;

typedef struct config_settings {
    bool is_read;
    bool rope_by_layer; /* RoPE has settings for kinds of layers */
    config_setting top[CONFIG_SETTINGS_MAX], nested[CONFIG_SETTINGS_MAX]; /* of text_config */
} config_settings;

/* A config.json that is absent or unreadable has none. NOMEM, LIMIT. */
fsdpck_status config_settings_read(const model_config *config, config_settings *s,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
size_t config_settings_count(void);
const char *config_settings_key(size_t index);
/* That at the top, else that in text_config. */
const config_setting *config_settings_of(const config_settings *s, size_t index);
/* The same by its key, which must be one of them. */
const config_setting *config_settings_find(const config_settings *s, const char *key);
/* 0: absent. */
uint64_t config_settings_number(const config_settings *s, const char *key);
/* Whether both have the setting, and another value. */
bool config_settings_differ(const config_settings *a, const config_settings *b, size_t index);

#endif
