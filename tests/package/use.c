/* The installed C interface. */
#include <bitcube.h>
#include <stdio.h>

int main(void) {
  printf("%s\n", bitcube_version());
  return 0;
}
