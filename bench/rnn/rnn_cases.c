#include "bench/rnn/rnn_cases.h"

#include "allocator/base/random.h"

enum { LENGTHS_SEED = 20261121 };

#define NETWORK(of_cell, of_input, of_hidden, of_layers, of_directions)                         \
    {                                                                                           \
        .input = (of_input), .hidden = (of_hidden), .layers = (of_layers), .dtype = ASHLAR_F32, \
        .cell = ASHLAR_RNN_##of_cell, .directions = (of_directions)                             \
    }

const ashlar_rnn_case *ashlar__rnn_cases(size_t *count) {
    static const ashlar_rnn_case cases[] = {
        {"lstm_T64_B32_H256_L2", 64, 32, NETWORK(LSTM, 256, 256, 2, 1), false, false},
        {"gru_T64_B32_H256_L2", 64, 32, NETWORK(GRU, 256, 256, 2, 1), false, false},
        {"lstm_T64_B32_I128_H512_L1", 64, 32, NETWORK(LSTM, 128, 512, 1, 1), false, false},
        {"lstm_T20_B8_H64_L2", 20, 8, NETWORK(LSTM, 64, 64, 2, 1), false, false},
        {"lstm_T64_B1_H256_L2", 64, 1, NETWORK(LSTM, 256, 256, 2, 1), false, false},
        {"gru_T64_B1_H256_L2", 64, 1, NETWORK(GRU, 256, 256, 2, 1), false, false},
        {"lstm_T256_B16_H256_L2", 256, 16, NETWORK(LSTM, 256, 256, 2, 1), false, false},
        {"lstm_T64_B32_H256_L2_varied", 64, 32, NETWORK(LSTM, 256, 256, 2, 1), true, false},
        {"lstm_T64_B32_H256_L2_both", 64, 32, NETWORK(LSTM, 256, 256, 2, 2), false, false},
        {"lstm_T64_B32_H256_L2_inference", 64, 32, NETWORK(LSTM, 256, 256, 2, 1), false, true},
        {"gru_T64_B32_H256_L2_inference", 64, 32, NETWORK(GRU, 256, 256, 2, 1), false, true},
        {"lstm_T64_B1_H256_L2_inference", 64, 1, NETWORK(LSTM, 256, 256, 2, 1), false, true},
    };
    *count = sizeof cases / sizeof cases[0];
    return cases;
}

void ashlar__rnn_case_lengths(const ashlar_rnn_case *which, int32_t *lengths) {
    ashlar_random random;
    ashlar__random_init(&random, LENGTHS_SEED);
    for (size_t b = 0; b < which->batch; b++) {
        const size_t least = which->is_varied && b > 0 ? which->steps / 4 : which->steps;
        lengths[b] = (int32_t)(least + ashlar__random_below(&random, which->steps - least + 1));
    }
}
