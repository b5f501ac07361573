/* Puts and gets through the daemon of Towpath, with nothing but the C library.
 *
 *     cc -O2 -Wall -o tow_api tow_api.c
 *
 *     tow_api SOCKET put FILE              by name: nothing is copied
 *     tow_api SOCKET put-parts FILE        in parts, as they are read; '-' is standard input
 *     tow_api SOCKET put-lines FILE        the same, and chunks end where lines do
 *     tow_api SOCKET put-descriptor FILE   by its open descriptor; '-' is standard input
 *     tow_api SOCKET get TICKET [FIRST-LAST]
 *
 * A put prints the ticket, a get writes the object, or the bytes FIRST to LAST of it, to standard
 * output. Exit status: 0 all is well, 1 it failed, 2 wrong usage.
 *
 * Each call has a connection of its own, which its answer closes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* LINES: of a run, on average. */
enum { PART = 1 << 20, TEXT = 64 << 10, LINES = 256, NO_DESCRIPTOR = -1 };

/* Where the daemon is. */
static const char *socket_path;
/* What to do before the program ends in failure. */
static void (*give_up)(void);

static void fail(const char *format, ...)
{
    va_list args;
    fputs("tow_api: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    if (give_up != NULL) {
        void (*once)(void) = give_up;
        give_up = NULL;
        once();
    }
    exit(1);
}

/* ---- JSON, as much as is needed here ---- */

/* Appends `text` as a JSON string. */
static void json_string(char *out, size_t room, const char *text)
{
    size_t at = strlen(out);
    if (at + 6 * strlen(text) + 3 > room)
        fail("too long: %s", text);
    out[at++] = '"';
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            at += (size_t)sprintf(out + at, "\\%c", byte);
        else if (byte < 0x20)
            at += (size_t)sprintf(out + at, "\\u%04x", byte);
        else
            out[at++] = (char)byte;
    }
    strcpy(out + at, "\"");
}

/* Copies the string that the field `name` of a flat object holds; false if there is none. */
static int json_field(const char *json, const char *name, char *out, size_t room)
{
    char key[64];
    size_t len = 0;
    snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *at = strstr(json, key);
    if (at == NULL)
        return 0;
    for (at += strlen(key); *at != '\0' && *at != '"' && len + 1 < room; at++) {
        /* What is escaped in an answer is meant for people: a quote or a backslash. */
        if (*at == '\\' && at[1] != '\0')
            at++;
        out[len++] = *at;
    }
    out[len] = '\0';
    return 1;
}

/* ---- HTTP ---- */

struct answer {
    FILE *stream;
    int status;
    /* Bytes of the body; -1 if it comes in chunks. */
    long long length;
};

static void send_all(int to, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = write(to, bytes, len);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            fail("the daemon ended the connection: %s", strerror(errno));
        bytes += sent;
        len -= (size_t)sent;
    }
}

/* Sends one byte with an open descriptor attached. */
static void send_descriptor(int to, char byte, int descriptor)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof descriptor)];
    } control = {0};
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(to, &message, 0) != 1)
        fail("the descriptor could not be passed: %s", strerror(errno));
}

static int connect_to_daemon(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(socket_path) >= sizeof address.sun_path)
        fail("%s: longer than the name of a socket can be", socket_path);
    strcpy(address.sun_path, socket_path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0 || connect(made, (struct sockaddr *)&address, sizeof address) < 0)
        fail("%s: %s; does 'tow daemon' run?", socket_path, strerror(errno));
    return made;
}

/* Reads one line of a head, without its end. */
static void read_line(FILE *stream, char *line, int room)
{
    if (fgets(line, room, stream) == NULL)
        fail("the daemon ended the connection before it had answered");
    line[strcspn(line, "\r\n")] = '\0';
}

static struct answer read_head(FILE *stream)
{
    struct answer answer = {.stream = stream};
    char line[4096];
    read_line(stream, line, sizeof line);
    if (sscanf(line, "HTTP/1.1 %d", &answer.status) != 1)
        fail("not an answer: %s", line);
    for (;;) {
        read_line(stream, line, sizeof line);
        if (line[0] == '\0')
            return answer;
        if (strncasecmp(line, "content-length:", 15) == 0)
            answer.length = atoll(line + 15);
        if (strncasecmp(line, "transfer-encoding:", 18) == 0)
            answer.length = -1;
    }
}

/* Hands `len` bytes of the body to `out`. */
static void copy(FILE *from, FILE *out, unsigned long long len)
{
    static char part[PART];
    while (len > 0) {
        size_t most = len < sizeof part ? (size_t)len : sizeof part;
        size_t got = fread(part, 1, most, from);
        if (got == 0)
            fail("the answer was cut off: run the same command again");
        if (fwrite(part, 1, got, out) != got)
            fail("could not write: %s", strerror(errno));
        len -= got;
    }
}

/* Hands the whole body to `out`; fails if it is cut off. */
static void read_body(struct answer *answer, FILE *out)
{
    char line[64];
    if (answer->length >= 0) {
        copy(answer->stream, out, (unsigned long long)answer->length);
    } else {
        for (;;) {
            read_line(answer->stream, line, sizeof line);
            unsigned long long len = strtoull(line, NULL, 16);
            if (len == 0 && line[0] != '0')
                fail("the answer was cut off: run the same command again");
            copy(answer->stream, out, len);
            read_line(answer->stream, line, sizeof line);
            if (len == 0)
                break;
        }
    }
    fclose(answer->stream);
}

/* Reads a body that is a text. */
static void read_text(struct answer *answer, char *text)
{
    FILE *out = fmemopen(text, TEXT, "w");
    if (out == NULL)
        fail("no memory");
    text[0] = '\0';
    read_body(answer, out);
    fclose(out);
}

/* Ends the program with what went wrong, in words: problem details (RFC 9457). */
static void fail_with_problem(struct answer *answer)
{
    char text[TEXT], detail[4096], hint[4096] = "";
    read_text(answer, text);
    if (!json_field(text, "detail", detail, sizeof detail))
        fail("the daemon answered %d", answer->status);
    int has_hint = json_field(text, "hint", hint, sizeof hint);
    fail("%s%s%s", detail, has_hint ? "; " : "", hint);
}

/* Makes a call; `fields` are further lines of its head. The body is still to be read. */
static struct answer call(const char *method, const char *path, const char *fields, const char *body,
                          size_t len, int descriptor)
{
    char head[8192];
    int size = snprintf(head, sizeof head,
                        "%s %s HTTP/1.1\r\nHost: tow\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n",
                        method, path, fields, len);
    if (size < 0 || (size_t)size >= sizeof head)
        fail("too long a request");
    int to = connect_to_daemon();
    size_t sent = 0;
    if (descriptor != NO_DESCRIPTOR) {
        send_descriptor(to, head[0], descriptor);
        sent = 1;
    }
    send_all(to, head + sent, (size_t)size - sent);
    send_all(to, body, len);
    FILE *stream = fdopen(to, "r");
    if (stream == NULL)
        fail("no memory");
    struct answer answer = read_head(stream);
    if (answer.status >= 400)
        fail_with_problem(&answer);
    return answer;
}

/* Makes a call whose body is JSON. */
static struct answer call_json(const char *path, const char *fields, const char *json)
{
    char all[4096];
    snprintf(all, sizeof all, "Content-Type: application/json\r\n%s", fields);
    return call("POST", path, all, json, strlen(json), NO_DESCRIPTOR);
}

/* ---- The commands ---- */

static int open_file(const char *name)
{
    int file = strcmp(name, "-") == 0 ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        fail("%s: %s", name, strerror(errno));
    return file;
}

/* Prints the ticket of an answer. */
static void print_ticket(const char *json)
{
    char ticket[4096];
    if (!json_field(json, "ticket", ticket, sizeof ticket))
        fail("no ticket came: %s", json);
    if (puts(ticket) == EOF || fflush(stdout) == EOF)
        fail("could not write: %s", strerror(errno));
}

static void put(const char *name)
{
    char path[PATH_MAX], request[TEXT] = "{\"path\":", text[TEXT];
    if (realpath(name, path) == NULL)
        fail("%s: %s", name, strerror(errno));
    json_string(request, sizeof request - 1, path);
    strcat(request, "}");
    struct answer answer = call_json("/v1/put", "", request);
    read_text(&answer, text);
    print_ticket(text);
}

/* The path of the put in parts that is open. */
static char open_put[512];

/* Whoever follows the put sees an error at once, and not an end. */
static void give_up_put(void)
{
    call("DELETE", open_put, "", "", 0, NO_DESCRIPTOR);
}

/* Reads the next part of a file, whatever has come of it; false at its end. */
static int next_bytes(FILE *file, char **part, size_t *len)
{
    static char bytes[PART];
    ssize_t got;
    do
        got = read(fileno(file), bytes, sizeof bytes);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        fail("could not read: %s", strerror(errno));
    *part = bytes;
    *len = (size_t)got;
    return got > 0;
}

/* The sum that zlib has as crc32. */
static unsigned long crc32_of(const char *bytes, size_t len)
{
    unsigned long sum = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        sum ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ 0xedb88320 : sum >> 1;
    }
    return sum ^ 0xffffffff;
}

/* Reads the next run of whole lines. Where one ends depends on its last line alone, so that it ends
 * there again after an insertion further up. */
static int next_lines(FILE *file, char **part, size_t *len)
{
    static char *run, *line;
    static size_t room;
    free(run);
    FILE *out = open_memstream(&run, len);
    if (out == NULL)
        fail("no memory");
    for (ssize_t got; (got = getline(&line, &room, file)) > 0;) {
        if (fwrite(line, 1, (size_t)got, out) != (size_t)got)
            fail("no memory");
        if (crc32_of(line, (size_t)got) % LINES == 0)
            break;
    }
    if (ferror(file))
        fail("could not read: %s", strerror(errno));
    if (fclose(out) == EOF)
        fail("no memory");
    *part = run;
    return *len > 0;
}

/* Puts a file in the parts that `next` reads; `query` goes with each. */
static void put_each(const char *name, int (*next)(FILE *, char **, size_t *), const char *query)
{
    char *part;
    size_t len;
    char request[TEXT] = "{\"name\":", text[TEXT], oid[256], path[1024];
    unsigned long long offset = 0;
    int descriptor = open_file(name);
    FILE *file = fdopen(descriptor, "r");
    if (file == NULL)
        fail("%s: %s", name, strerror(errno));
    const char *slash = strrchr(name, '/');
    json_string(request, sizeof request - 1, descriptor == STDIN_FILENO ? "" : slash ? slash + 1 : name);
    strcat(request, "}");
    struct answer answer = call_json("/v1/puts", "", request);
    read_text(&answer, text);
    if (!json_field(text, "oid", oid, sizeof oid))
        fail("no put was opened: %s", text);
    snprintf(open_put, sizeof open_put, "/v1/puts/%s", oid);
    give_up = give_up_put;
    /* A receiver can follow from here on. */
    print_ticket(text);
    while (next(file, &part, &len)) {
        snprintf(path, sizeof path, "%s/data?offset=%llu%s", open_put, offset, query);
        answer = call("POST", path, "", part, len, NO_DESCRIPTOR);
        read_text(&answer, text);
        offset += len;
    }
    snprintf(path, sizeof path, "%s/commit", open_put);
    answer = call("POST", path, "", "", 0, NO_DESCRIPTOR);
    read_text(&answer, text);
    give_up = NULL;
}

static void put_descriptor(const char *name)
{
    char text[TEXT];
    struct answer answer = call("POST", "/v1/put-descriptor", "", "", 0, open_file(name));
    read_text(&answer, text);
    print_ticket(text);
}

static void get(const char *ticket, const char *wanted)
{
    char request[TEXT] = "{\"ticket\":", range[128] = "";
    /* In the body the ticket stays out of logs. */
    json_string(request, sizeof request - 1, ticket);
    strcat(request, "}");
    if (wanted != NULL && strspn(wanted, "0123456789-") != strlen(wanted))
        fail("not a range: %s", wanted);
    if (wanted != NULL)
        snprintf(range, sizeof range, "Range: bytes=%.100s\r\n", wanted);
    struct answer answer = call_json("/v1/content", range, request);
    if (wanted != NULL && answer.status != 206)
        fail("the object has no known size yet, so there are no parts of it: get the whole");
    read_body(&answer, stdout);
    if (fflush(stdout) == EOF)
        fail("could not write: %s", strerror(errno));
}

static int usage(void)
{
    fputs("tow_api SOCKET put FILE\n"
          "tow_api SOCKET put-parts FILE        '-' is standard input\n"
          "tow_api SOCKET put-lines FILE        '-' is standard input\n"
          "tow_api SOCKET put-descriptor FILE   '-' is standard input\n"
          "tow_api SOCKET get TICKET [FIRST-LAST]\n",
          stderr);
    return 2;
}

int main(int count, char **words)
{
    /* A daemon that goes away is an error to be told, not the end of the program. */
    signal(SIGPIPE, SIG_IGN);
    if (count < 4 || count > 5)
        return usage();
    const char *command = words[2];
    socket_path = words[1];
    if (strcmp(command, "get") == 0)
        get(words[3], words[4]);
    else if (count == 4 && strcmp(command, "put") == 0)
        put(words[3]);
    else if (count == 4 && strcmp(command, "put-parts") == 0)
        put_each(words[3], next_bytes, "");
    else if (count == 4 && strcmp(command, "put-lines") == 0)
        /* Two versions of the data share the chunks whose lines are the same. */
        put_each(words[3], next_lines, "&boundary=true");
    else if (count == 4 && strcmp(command, "put-descriptor") == 0)
        put_descriptor(words[3]);
    else
        return usage();
    return 0;
}
