/* Reading an event: JSON, strictly; icd/features/hook/event.py is the reference, and a test compares.

   The author of the event is not trusted.  All of it has to be right before a field of it counts;
   a field that is too long, holds a NUL or half of a surrogate pair is as if it were not there. */

#define _GNU_SOURCE
#include "event.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, PLAIN_BYTES = 128 };

/* What is still to be read, and how deep it lies. */
struct scan {
    const char *at, *end;
    int depth;
};

/* A value that was found: its kind is its first character; of a string, what is between the quotes. */
struct value {
    char kind;
    const char *from, *to;
};

/* --- text --- */

/* As Python decodes: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool is_utf8(const char *data, size_t size)
{
    const unsigned char *at = (const unsigned char *)data, *end = at + size;
    while (at < end) {
        unsigned first = *at++, least = 0x80, most = 0xbf;
        if (first < 0x80) continue;
        if (first < 0xc2 || first > 0xf4) return false;
        int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (first == 0xe0) least = 0xa0;
        if (first == 0xed) most = 0x9f;
        if (first == 0xf0) least = 0x90;
        if (first == 0xf4) most = 0x8f;
        for (; more--; least = 0x80, most = 0xbf)
            if (at == end || *at < least || *at++ > most) return false;
    }
    return true;
}

static unsigned hex4(const char *at)
{
    unsigned found = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        found = found * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return found;
}

static char *put_utf8(char *to, unsigned code)
{
    if (code < 0x80) *to++ = (char)code;
    else if (code < 0x800) *to++ = (char)(0xc0 | code >> 6);
    else if (code < 0x10000) *to++ = (char)(0xe0 | code >> 12);
    else *to++ = (char)(0xf0 | code >> 18), *to++ = (char)(0x80 | (code >> 12 & 63));
    if (code >= 0x800) *to++ = (char)(0x80 | (code >> 6 & 63));
    if (code >= 0x80) *to++ = (char)(0x80 | (code & 63));
    return to;
}

/* The character behind a backslash; 0 if no text may hold it.  The string was scanned before. */
static unsigned escaped(const char **at, const char *end)
{
    static const char plain[] = "bfnrt", meant[] = "\b\f\n\r\t";
    char c = *(*at)++;
    const char *found = strchr(plain, c);
    if (c != 'u') return found ? (unsigned char)meant[found - plain] : (unsigned char)c;
    unsigned code = hex4(*at);
    *at += 4;
    if (code < 0xd800 || code > 0xdfff) return code;
    bool pair = code < 0xdc00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u';
    unsigned low = pair ? hex4(*at + 2) : 0;
    if (low < 0xdc00 || low > 0xdfff) return 0;
    *at += 6;
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

/* A string as text of its own; NULL if the value is none, or cannot be used. */
static char *unescaped(struct value v)
{
    char *made = v.kind == '"' ? malloc((size_t)(v.to - v.from) + 1) : NULL, *to = made;
    for (const char *at = v.from; made && at < v.to;) {
        unsigned code = (unsigned char)*at++;
        if (code != '\\') {
            *to++ = (char)code;
            continue;
        }
        if (!(code = escaped(&at, v.to))) return free(made), NULL;
        to = put_utf8(to, code);
    }
    if (made) *to = 0;
    return made;
}

/* The same, if it is not too long for an environment. */
static char *text(struct value v)
{
    char *made = unescaped(v);
    if (made && strlen(made) > FIELD_BYTES) return free(made), NULL;
    return made;
}

/* --- JSON --- */

static bool scan_value(struct scan *s, struct value *v);

static void skip_space(struct scan *s)
{
    while (s->at < s->end && *s->at && strchr(" \t\n\r", *s->at)) s->at++;
}

static bool take(struct scan *s, char wanted)
{
    skip_space(s);
    return s->at < s->end && *s->at == wanted ? s->at++, true : false;
}

static bool take_word(struct scan *s, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, word, size)) return false;
    s->at += size;
    return true;
}

static bool scan_string(struct scan *s)
{
    for (s->at++; s->at < s->end; s->at++) {
        unsigned char c = (unsigned char)*s->at;
        if (c == '"') return s->at++, true;
        if (c < 0x20) return false;
        if (c != '\\') continue;
        if (++s->at == s->end || !*s->at || !strchr("\"\\/bfnrtu", *s->at)) return false;
        if (*s->at != 'u') continue;
        for (int i = 0; i < 4; i++)
            if (++s->at == s->end || !*s->at || !strchr("0123456789abcdefABCDEF", *s->at)) return false;
    }
    return false;
}

static int digits(struct scan *s)
{
    const char *from = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return (int)(s->at - from);
}

static bool scan_number(struct scan *s)
{
    take_word(s, "-");
    bool zero = s->at < s->end && *s->at == '0';
    int count = digits(s);
    if (!count || (zero && count > 1)) return false;
    if (take_word(s, ".") && !digits(s)) return false;
    if (!take_word(s, "e") && !take_word(s, "E")) return true;
    if (!take_word(s, "+")) take_word(s, "-");
    return digits(s) > 0;
}

/* The next element of an array, or member of an object, with its key; false at the end, where
   `right` says whether it is one. */
static bool next(struct scan *s, char close, struct value *key, struct value *v, bool *first, bool *right)
{
    if ((*right = take(s, close))) return false;
    if (!*first && !take(s, ',')) return false;
    *first = false;
    skip_space(s);
    if (key && !(s->at < s->end && *s->at == '"' && scan_value(s, key) && take(s, ':'))) return false;
    return scan_value(s, v);
}

static bool scan_container(struct scan *s, char close)
{
    struct value key, v;
    bool first = true, right;
    s->at++;
    if (++s->depth > DEPTH) return false;
    while (next(s, close, close == '}' ? &key : NULL, &v, &first, &right)) {}
    s->depth--;
    return right;
}

static bool scan_value(struct scan *s, struct value *v)
{
    skip_space(s);
    if (s->at == s->end) return false;
    bool right = false;
    v->kind = *s->at;
    v->from = s->at;
    switch (v->kind) {
    case '"': right = scan_string(s); break;
    case '{': right = scan_container(s, '}'); break;
    case '[': right = scan_container(s, ']'); break;
    case 't': right = take_word(s, "true"); break;
    case 'f': right = take_word(s, "false"); break;
    case 'n': right = take_word(s, "null"); break;
    default: right = scan_number(s);
    }
    v->to = s->at;
    if (v->kind == '"') v->from++, v->to--;
    return right;
}

/* --- the event --- */

struct found { /* a value whose kind is 0 is not there */
    struct value session, conversation, cwd, roots, event, tool, input, file, stop, transcript;
    struct value turn, timestamp, version;
};

static bool is(struct value key, const char *name)
{
    char *word = text(key);
    bool same = word && !strcmp(word, name);
    free(word);
    return same;
}

/* A member of an object that was scanned before; of several, the last counts. */
static struct value member(struct value object, const char *name)
{
    struct value key, v, last = {0};
    bool first = true, right;
    if (object.kind != '{') return last;
    struct scan s = {object.from + 1, object.to, 0};
    while (next(&s, '}', &key, &v, &first, &right))
        if (is(key, name)) last = v;
    return last;
}

static void find(struct value whole, struct found *f)
{
    const struct { const char *name; struct value *to; } places[] = {
        {"session_id", &f->session}, {"conversation_id", &f->conversation}, {"cwd", &f->cwd},
        {"workspace_roots", &f->roots}, {"hook_event_name", &f->event}, {"tool_name", &f->tool},
        {"tool_input", &f->input}, {"file_path", &f->file}, {"stop_hook_active", &f->stop},
        {"transcript_path", &f->transcript}, {"turn_id", &f->turn}, {"timestamp", &f->timestamp},
        {"cursor_version", &f->version},
    };
    struct scan s = {whole.from + 1, whole.to, 0};
    struct value key, v;
    bool first = true, right;
    while (next(&s, '}', &key, &v, &first, &right)) {
        char *name = text(key);
        for (size_t i = 0; name && i < sizeof places / sizeof *places; i++)
            if (!strcmp(name, places[i].name)) *places[i].to = v;
        free(name);
    }
}

/* The first of some texts that is not empty, or an empty one; the others are freed. */
static char *either(char *one, char *other)
{
    if (one && *one) return free(other), one;
    free(one);
    return other ? other : strdup("");
}

static const char *guess_agent(const struct found *f, const char *event)
{
    if (f->conversation.kind || f->roots.kind || f->version.kind) return "cursor";
    if (f->timestamp.kind) return "gemini";
    char *transcript = text(f->transcript);
    bool rollout = transcript && strstr(transcript, "/rollout-"), named = transcript && *transcript;
    free(transcript);
    if (f->transcript.kind == 'n' || rollout || (f->turn.kind && !named)) return "codex";
    return *event || named ? "claude" : "";
}

/* The first file of a patch of Codex, whose only tool for edits it is; NULL if there is none. */
static char *first_patched(char *patch)
{
    static const char *heads[] = {"*** Add File: ", "*** Update File: ", "*** Delete File: "};
    for (char *line = patch; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        for (int i = 0; i < 3; i++)
            if (!strncmp(line, heads[i], strlen(heads[i]))) {
                char *name = line + strlen(heads[i]);
                size_t size = strcspn(name, "\n");
                return size <= FIELD_BYTES ? strndup(name, size) : NULL;
            }
    return NULL;
}

static struct value first_of(struct value array)
{
    struct value v, none = {0};
    bool first = true, right;
    if (array.kind != '[') return none;
    struct scan s = {array.from + 1, array.to, 0};
    return next(&s, ']', NULL, &v, &first, &right) ? v : none;
}

/* False if this is no event; then all fields are empty. */
bool read_event(const char *data, size_t size, struct event *to)
{
    struct scan s = {data, data + size, 0};
    struct value whole = {0};
    struct found f = {0};
    bool right = is_utf8(data, size) && scan_value(&s, &whole) && whole.kind == '{';
    skip_space(&s);
    right = right && s.at == s.end;
    if (right) find(whole, &f);
    struct value of_file = member(f.input, "file_path"), path = member(f.input, "path");
    struct value notebook = member(f.input, "notebook_path");
    to->session = either(text(f.session), text(f.conversation));
    to->cwd = either(text(f.cwd), text(first_of(f.roots)));
    to->event = either(text(f.event), NULL);
    to->tool = either(text(f.tool), NULL);
    bool patches = to->tool && !strcmp(to->tool, "apply_patch");
    char *patch = patches ? unescaped(member(f.input, "command")) : NULL;
    char *rest = either(text(notebook), either(first_patched(patch), text(f.file)));
    to->file = either(text(of_file), either(text(path), rest));
    free(patch);
    to->stop_active = f.stop.kind == 't';
    to->agent = guess_agent(&f, to->event ? to->event : "");
    return right;
}

void forget_event(struct event *e)
{
    free(e->session), free(e->cwd), free(e->event), free(e->tool), free(e->file);
}

/* --- names and scopes --- */

bool is_plain(const char *word)
{
    size_t size = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return size && size <= PLAIN_BYTES && !word[size] && *word != '.' && *word != '-' && !strstr(word, "..");
}

static uint32_t turn(uint32_t word, int by)
{
    return word >> by | word << (32 - by);
}

static void sha256_block(uint32_t state[8], const unsigned char *block)
{
    static const uint32_t K[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    };
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                       ((s[4] & s[5]) ^ (~s[4] & s[6])) + K[i] + w[i];
        uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                       ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

/* The first digits of the SHA-256 of some bytes, in hexadecimal. */
void hash(const char *data, size_t size, int digits, char *to)
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char last[128] = {0};
    char all[65];
    size_t rest = size % 64, room = rest < 56 ? 64 : 128;
    for (size_t i = 0; i + 64 <= size; i += 64) sha256_block(state, (const unsigned char *)data + i);
    if (rest) memcpy(last, data + size - rest, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++) last[room - 1 - (size_t)i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    for (size_t i = 0; i < room; i += 64) sha256_block(state, last + i);
    for (int i = 0; i < 8; i++) sprintf(all + 8 * i, "%08x", state[i]);
    memcpy(to, all, (size_t)digits);
    to[digits] = 0;
}
