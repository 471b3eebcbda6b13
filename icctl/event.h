/* The event that an agent sends to its hook, and the names that are made from it. */

#ifndef EVENT_H
#define EVENT_H

#include <stdbool.h>
#include <stddef.h>

enum { EVENT_BYTES = 8 << 20, FIELD_BYTES = 64 << 10 };
enum { HASH_DIGITS = 32, HASH_ROOM = HASH_DIGITS + 3, SCOPE_ROOM = 160 };

struct event { /* empty strings where the event does not tell */
    char *session, *cwd, *event, *tool, *file;
    const char *agent;
    bool stop_active;
};

bool is_utf8(const char *data, size_t size);
bool read_event(const char *data, size_t size, struct event *to);
void forget_event(struct event *e);
bool is_plain(const char *word);
void hash(const char *data, size_t size, int digits, char *to);

#endif
