/* The header in C99, and the C interface from a program that knows no C++. */
#include "bitcube.h"
#include "bitcube_dpi.h"

#include <stdio.h>
#include <string.h>

static int failures;
#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      fprintf(stderr, "  last error: %s\n", bitcube_last_error());    \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

int main(void) {
  bitcube_control control = {0};
  bitcube_quantize_options quantize = {0};
  uint64_t code = 0;
  uint32_t flags = 0;

  EXPECT(strcmp(bitcube_version(), BITCUBE_EXPECTED_VERSION) == 0);
  EXPECT(strcmp(bitcube_last_error(), "") == 0);

  /* 1.0625 to E4M3 is a tie. */
  control.profile = BITCUBE_PROFILE_OCP;
  EXPECT(bitcube_convert(BITCUBE_FP32, BITCUBE_E4M3, 0x3F880000, &control, &code, &flags) == BITCUBE_OK);
  EXPECT(code == 0x38 && flags == BITCUBE_NX);
  EXPECT(bitcube_dpi_convert(BITCUBE_FP32, BITCUBE_E4M3, 0x3F880000, 0, 0, BITCUBE_PROFILE_OCP, &code, &flags) == 0);
  EXPECT(code == 0x38 && flags == BITCUBE_NX);

  {
    /* Ones are exact in MXFP8. */
    float ones[64], back[64];
    const uint64_t shape[1] = {64};
    bitcube_tensor* tensor = NULL;
    int i;
    for (i = 0; i < 64; ++i) ones[i] = 1.0F;
    quantize.format = BITCUBE_MXFP8_E4M3;
    EXPECT(bitcube_quantize(BITCUBE_FP32, ones, sizeof ones, shape, 1, 0, &quantize, &tensor) == BITCUBE_OK);
    EXPECT(bitcube_dequantize(tensor, BITCUBE_FP32, NULL, back, sizeof back, &flags) == BITCUBE_OK);
    EXPECT(memcmp(ones, back, sizeof ones) == 0 && flags == 0);
    bitcube_tensor_free(tensor);
  }

  EXPECT(bitcube_convert(BITCUBE_FP32, 99, 0, NULL, &code, &flags) == BITCUBE_UNKNOWN);
  EXPECT(strcmp(bitcube_last_error(), "to: there is no type with code 99") == 0);
  return failures == 0 ? 0 : 1;
}
