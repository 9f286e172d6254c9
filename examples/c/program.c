/* Runs a program for the machine, and prints a Tile: program FILE.s [PE TILE], such as program first.s 0 U#1. */
#include <bitcube.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bitcube_status status) {
  if (status == BITCUBE_OK) return;
  fprintf(stderr, "%s: %s\n", bitcube_status_text(status), bitcube_last_error());
  exit(2);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) return 2;
  bitcube_program* program;
  bitcube_core* core;
  bitcube_run_result result;
  check(bitcube_program_load(argv[1], &program));
  check(bitcube_core_new(NULL, &core));
  check(bitcube_core_run(core, program, 0, &result));
  printf("%llu instructions, %llu bundles\n", (unsigned long long)result.steps, (unsigned long long)result.bundles);
  if (result.end == BITCUBE_RUN_FAULT)
    printf("%s, rule %s: %s\n", result.fault.class_name, result.fault.rule, result.fault.text);
  if (result.failed != 0) printf("line %d: %s\n", (int)result.failed_line, result.failed_text);
  if (argc == 4) {
    bitcube_tile tile;
    check(bitcube_core_tile(core, atoi(argv[2]), argv[3], &tile));
    unsigned char* words = malloc(tile.bytes);
    if (words == NULL) return 2;
    check(bitcube_core_read_tile(core, atoi(argv[2]), argv[3], words, tile.bytes));
    printf("%s %s %u x %u\n", bitcube_name(BITCUBE_TYPES, tile.type), bitcube_name(BITCUBE_LAYOUTS, tile.layout),
           (unsigned)tile.valid_rows, (unsigned)tile.valid_columns);
    for (size_t i = 0; i < (size_t)tile.valid_rows * tile.valid_columns; ++i) {
      uint64_t word = 0, value;
      memcpy(&word, words + i * tile.element_bytes, tile.element_bytes); /* on a little-endian host */
      double number;
      check(bitcube_convert(tile.type, BITCUBE_FP64, word, NULL, &value, NULL));
      memcpy(&number, &value, sizeof number);
      printf("%g%c", number, (i + 1) % tile.valid_columns == 0 ? '\n' : ' ');
    }
    free(words);
  }
  bitcube_core_free(core);
  bitcube_program_free(program);
  return result.ok ? 0 : 1;
}
