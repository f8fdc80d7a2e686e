#include "torch_stream.h"

#include <string.h>

#include "base/bytes.h"

#define MAGIC    "\x80\2\x8A\x0Al\xFC\x9C\x46\xF9\x20j\xA8P\x19."
#define PROTOCOL "\x80\2M\xE9\3."
#define SYSTEM   "\x80\2}X\15\0\0\0little_endian\x88s."
#define NO_KEYS  "\x80\2]."

#define PUT(file, opcodes) text_append(file, opcodes, sizeof(opcodes) - 1)

void torch_stream_begin(text_buf *file)
{
    PUT(file, MAGIC PROTOCOL SYSTEM "\x80\2");
}

void torch_stream_end(text_buf *file)
{
    PUT(file, "." NO_KEYS);
}

void torch_stream_text(text_buf *file, const char *text)
{
    const char head[5] = {'X', (char)strlen(text)};
    text_append(file, head, sizeof head);
    text_append(file, text, strlen(text));
}

void torch_stream_int(text_buf *file, int32_t number)
{
    uint8_t bytes[4];
    store_le32(bytes, (uint32_t)number);
    PUT(file, "J");
    text_append(file, (const char *)bytes, sizeof bytes);
}

void torch_stream_dict(text_buf *file, int32_t version)
{
    PUT(file, "ccollections\nOrderedDict\n)RX\1\0\0\0aK\1s");
    if (version == 0)
        return;
    PUT(file, "}");
    torch_stream_text(file, "version");
    torch_stream_int(file, version);
    PUT(file, "sb");
}
