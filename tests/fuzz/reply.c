/* Whatever a daemon sends back, the native client neither crashes nor hangs.

   The bytes come through a socket, as they would.  The first one chooses: a helper's call or not, and
   one of a client with a child or not, and one that can start a runner or not. */

#define main client_main
#include "../../icctl/client.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    struct call c = {.program = "icctl", .door = "fuzz", .keeps = size && data[0] & 1,
                     .child = size && data[0] & 2, .launched = size && data[0] & 4 ? "" : NULL};
    if (!size || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) return 0;
    struct reply r = {.fd = ends[0], .deadline = now() + 1000, .sent = true};
    start(&c.fields), start(&c.heads), start(&c.tail);
    send_all(&c, ends[1], (const char *)data + 1, size - 1);
    close(ends[1]);
    read_reply(&c, &r);
    close(ends[0]);
    stop(&c.fields), stop(&c.heads), stop(&c.tail);
    free(c.said);
    return 0;
}
