/* ctc_loss.c - the loss of ctc.c: connectionist temporal classification (Graves and others, 2006),
 * the mean over the sequences. It computes with probabilities themselves, not their logarithms: in
 * double precision enough for some hundred steps. */
#include <math.h>
#include <string.h>

#include "ctc.h"

/* The call that is queued, on the software device: all pointers are the host's, too. A path is in
 * one of 2 U + 1 states at each step: in label s / 2 if s is odd, else in a blank, of class 0. From
 * there it goes on to the same state, the next one or the next label, for no label is like the one
 * before it. ahead: the probability to be in s after t steps, at [t][s + 2]; paths begin at [0][1].
 * behind: the derivative, by that, of the logarithm of the probability of all paths. */
static void compute(void *argument) {
    const ashlar_operation_call *c = argument;
    const ashlar_extent *heard = &c->inputs[0].extent, *spoken = &c->inputs[1].extent;
    const float(*x)[B][V] = c->inputs[0].value;
    const int32_t(*labels)[B] = c->inputs[1].value;
    float(*dx)[B][V] = c->inputs[0].gradient;
    memset(dx, 0, heard->steps * sizeof *dx); /* past a length, too */
    for (int i = 0; i < B; i++) {
        const int steps = heard->lengths_at[i], states = 2 * spoken->lengths_at[i] + 1;
        double p[T][V], ahead[T + 1][2 * T + 3] = {{0, 1}}, behind[T + 1][2 * T + 3] = {{0}};
        for (int t = 0; t < steps; t++) {
            double sum = 0;
            for (int v = 0; v < V; v++) {
                p[t][v] = exp(x[t][i][v]);
                sum += p[t][v];
            }
            for (int v = 0; v < V; v++) {
                p[t][v] /= sum;
                dx[t][i][v] = (float)p[t][v] / B;
            }
            for (int s = 0; s < states; s++) {
                const int v = s % 2 ? labels[s / 2][i] : 0;
                for (int back = 0; back < 2 + s % 2; back++) {
                    ahead[t + 1][s + 2] += ahead[t][s + 2 - back] * p[t][v];
                }
            }
        }
        const double all = ahead[steps][states] + ahead[steps][states + 1];
        *c->loss -= log(all) / B;
        behind[steps][states] = behind[steps][states + 1] = 1 / all;
        for (int t = steps; t-- > 0;) {
            for (int s = 0; s < states; s++) {
                const int v = s % 2 ? labels[s / 2][i] : 0;
                dx[t][i][v] -= (float)(behind[t + 1][s + 2] * ahead[t + 1][s + 2] / B);
                for (int back = 0; back < 2 + s % 2; back++) {
                    behind[t][s + 2 - back] += behind[t + 1][s + 2] * p[t][v];
                }
            }
        }
    }
}

ashlar_status ctc_queue(void *device, const ashlar_operation_call *call, ashlar_stream stream) {
    return ashlar_launch(device, stream, compute, call, sizeof *call);
}
