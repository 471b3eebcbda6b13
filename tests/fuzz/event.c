/* Whatever an agent sends, the native client neither crashes nor hangs. */

#include "../../icctl/event.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct event e = {0};
    char digits[HASH_ROOM];
    bool right = read_event((const char *)data, size, &e);
    if (!right && (*e.session || *e.cwd || *e.event || *e.tool || *e.file)) abort();
    hash(e.session, strlen(e.session), HASH_DIGITS, digits);
    forget_event(&e);
    return 0;
}
