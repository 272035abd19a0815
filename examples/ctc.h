/* ctc.h - the sizes of ctc.c, and its loss. */
#ifndef CTC_H
#define CTC_H

#include <ashlar/ashlar.h>

enum { T = 16, B = 32, V = 6, STEPS = 400 }; /* longest, sequences, classes, training steps */

/* Queue the loss on a software device. The batch is one for training, without weight or scale. */
ashlar_status ctc_queue(void *device, const ashlar_operation_call *call, ashlar_stream stream);

#endif /* CTC_H */
