/* events.c: event files, as TensorBoard reads them.
 *
 * A file is a run of TFRecord frames (tensorflow/core/lib/io/record_writer.h):
 *     uint64 length | uint32 masked crc32c of the length | bytes | uint32 masked crc32c of the bytes         little endian
 *     masked(c) = rotate_right(c, 15) + 0xa282ead8
 * Each holds one protobuf message Event (tensorflow/core/util/event.proto), of which this writes
 *     Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
 *     Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; }   SessionLog { status = 1; }
 */
#include <stdio.h>
#include <unistd.h>

#include "metrics/internal.h"

/* CRC-32C (Castagnoli): reflected polynomial 0x82f63b78, all ones before and after. */
void tt_crc32c_init(uint32_t table[256])
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;
		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
		table[i] = c;
	}
}

uint32_t tt_crc32c(const uint32_t table[256], const void *bytes, size_t n)
{
	const uint8_t *b = bytes;
	uint32_t c = 0xffffffffu;
	for (size_t i = 0; i < n; i++)
		c = table[(c ^ b[i]) & 255] ^ c >> 8;
	return ~c;
}

/* protobuf: a field is the varint of number*8 + wire type, then 0: a varint, 1: 8 bytes, 2: a length and bytes, 5: 4 bytes. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_varint(tt_buf *b, uint64_t v)
{
	uint8_t bytes[10];
	size_t n = 0;
	do {
		bytes[n++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
		v >>= 7;
	} while (v);
	tt_buf_add(b, bytes, n);
}

static void put_le(tt_buf *b, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		tt_buf_add(b, &(uint8_t){ (uint8_t)(v >> 8 * i) }, 1);
}

static void put_field(tt_buf *b, int number, int wire) { put_varint(b, (uint64_t)(number * 8 + wire)); }

static void put_bytes(tt_buf *b, int number, const void *bytes, size_t n)
{
	put_field(b, number, WIRE_BYTES);
	put_varint(b, n);
	tt_buf_add(b, bytes, n);
}

enum { HEAD = 12 }; /* length and its checksum */

static void event_begin(tt_events *e, double wall, int64_t step)
{
	uint64_t bits;
	memcpy(&bits, &wall, 8);
	e->record.n = 0;
	tt_buf_add(&e->record, (char[HEAD]){ 0 }, HEAD);
	put_field(&e->record, 1, WIRE_64);
	put_le(&e->record, bits, 8);
	if (step) {
		put_field(&e->record, 2, WIRE_VARINT);
		put_varint(&e->record, (uint64_t)step);
	}
}

static uint32_t masked(const tt_events *e, const void *bytes, size_t n)
{
	uint32_t c = tt_crc32c(e->crc, bytes, n);
	return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void event_end(tt_events *e)
{
	tt_buf *b = &e->record;
	size_t n = b->n - HEAD;
	put_le(b, masked(e, b->s + HEAD, n), 4);
	for (int i = 0; i < 8; i++)
		b->s[i] = (char)((uint64_t)n >> 8 * i);
	uint32_t c = masked(e, b->s, 8);
	for (int i = 0; i < 4; i++)
		b->s[8 + i] = (char)(c >> 8 * i);
	tt_sink_write(&e->sink, b->s, b->n);
}

void tt_events_open(tt_events *e, const char *folder, double wall, int64_t resume_step)
{
	e->sink.fd = -1;
	tt_crc32c_init(e->crc);
	tt_metrics_reserve(&e->record, 4096);
	tt_metrics_reserve(&e->summary, 4096);
	/* Readers take a folder's files in the order of their names, so a resumed run's must come after those before it. */
	char host[65] = "host";
	gethostname(host, sizeof host - 1);
	tt_buf path = { 0 };
	tt_buf_printf(&path, "%s/tb", folder);
	if (tt_mkdirs(path.s) != TT_OK) {
		tt_log(TT_LOG_WARN, "metrics: %s; the run goes on without event files", tt_error_text());
		tt_buf_fini(&path);
		return;
	}
	tt_buf_printf(&path, "/events.out.tfevents.%010lld.%s.%ld", (long long)wall, host, (long)getpid());
	tt_sink_open(&e->sink, path.s);
	event_begin(e, wall, 0);
	put_bytes(&e->record, 3, "brain.Event:2", 13);
	event_end(e);
	/* "Started at this step": what older files of the folder say about it and later ones no longer counts. */
	event_begin(e, wall, resume_step + 1);
	put_bytes(&e->record, 7, "\x08\x01", 2);
	event_end(e);
}

void tt_events_scalar(tt_events *e, const char *tag, double value)
{
	if (e->sink.fd < 0)
		return;
	float f = (float)value;
	uint32_t bits;
	memcpy(&bits, &f, 4);
	size_t n = strlen(tag), varint = 1;
	for (size_t rest = n >> 7; rest; rest >>= 7)
		varint++;
	put_field(&e->summary, 1, WIRE_BYTES);
	put_varint(&e->summary, 1 + varint + n + 5);
	put_bytes(&e->summary, 1, tag, n);
	put_field(&e->summary, 2, WIRE_32);
	put_le(&e->summary, bits, 4);
}

void tt_events_flush(tt_events *e, double wall, int64_t step)
{
	if (e->sink.fd < 0 || !e->summary.n)
		return;
	event_begin(e, wall, step);
	put_bytes(&e->record, 5, e->summary.s, e->summary.n);
	event_end(e);
	e->summary.n = 0;
}

void tt_events_close(tt_events *e)
{
	tt_sink_close(&e->sink);
	tt_buf_fini(&e->record);
	tt_buf_fini(&e->summary);
}
