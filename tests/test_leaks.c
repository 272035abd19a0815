#include "guard_fixture.h"
int main(void){return keep_report==0 || set_up_guarded==0;}
