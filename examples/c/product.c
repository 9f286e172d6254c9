/* X * W in HiFloat4, scaled to signed bytes: quantise, multiply, post-process. */
#include <bitcube.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 2, K = 64, N = 3 };

static void check(bitcube_status status) {
  if (status == BITCUBE_OK) return;
  fprintf(stderr, "%s: %s\n", bitcube_status_text(status), bitcube_last_error());
  exit(EXIT_FAILURE);
}

int main(void) {
  float x[M * K], w[K * N];
  for (int i = 0; i < M * K; ++i) x[i] = (float)(i % 7) - 3.0F;
  for (int i = 0; i < K * N; ++i) w[i] = (float)(i % 5) / 4.0F;
  const uint64_t x_shape[] = {M, K}, w_shape[] = {K, N};
  bitcube_operand a = {0}, b = {0};
  bitcube_tensor *qx, *qw;
  check(bitcube_quantize(BITCUBE_FP32, x, sizeof x, x_shape, 2, 1, NULL, &qx)); /* groups along K */
  check(bitcube_quantize(BITCUBE_FP32, w, sizeof w, w_shape, 2, 0, NULL, &qw));
  a.tensor = qx;
  b.tensor = qw;
  uint32_t accumulators[M * N], flags;
  check(bitcube_matmul(&a, &b, NULL, accumulators, M * N));

  int8_t d[M * N];
  uint64_t carrier;
  bitcube_postprocess_options options = {0};
  bitcube_postprocess_output output = {0};
  check(bitcube_find(BITCUBE_PREQUANT_MODES, "QF322B8_PRE", &options.mode));
  check(bitcube_scale_carrier(options.mode, bitcube_fp32_to_fp19(0x3F000000), 10, &carrier)); /* 0.5 x + 10 */
  options.carriers = &carrier;
  options.carrier_count = 1;
  options.saturate = 1;
  output.d = d;
  output.d_bytes = sizeof d;
  check(bitcube_postprocess(BITCUBE_FP32, accumulators, M, N, &options, &output, &flags));
  for (int i = 0; i < M * N; ++i) printf("%d%c", d[i], i % N == N - 1 ? '\n' : ' ');
  printf("flags%s%s\n", flags & BITCUBE_NX ? " NX" : "", flags & BITCUBE_OF ? " OF" : "");
  bitcube_tensor_free(qx);
  bitcube_tensor_free(qw);
  return 0;
}
