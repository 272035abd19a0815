"""torch_sequences.py - the models of examples/ with several axes of time, for torch_examples.py."""

import torch
from torch import nn


class Model(nn.Module):
    """Trained by Adam from all of its weights."""

    RATE = 0.003

    def file(self):
        return self.state_dict()

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=self.RATE)


def padded(rows, longest):
    """[longest, rows] of sequences of different lengths."""
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows]).t()


def packed(x, lengths):
    return nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)


def unpacked(x, longest):
    return nn.utils.rnn.pad_packed_sequence(x, total_length=longest)[0]


class Seq2seq(Model):
    """The decoder reads the embedding of the digit before, and zeros first."""

    def __init__(self):
        super().__init__()
        self.digits = nn.Embedding(10, 16)
        self.encoder, self.decoder = nn.GRU(16, 64), nn.GRU(16, 64)
        self.linear = nn.Linear(64, 10)

    def loss(self, draw):
        digits = torch.tensor([draw.of_c(10) for _ in range(3 * 64)]).view(3, 64)
        x = self.digits(digits)
        before = torch.cat((torch.zeros(1, 64, 16), x[1:].flip(0)))
        y, _ = self.decoder(before, self.encoder(x)[1])
        return nn.functional.cross_entropy(self.linear(y).flatten(0, 1), digits.flip(0).flatten())


class Ctc(Model):
    RATE = 0.01

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 32)
        self.lstm = nn.LSTM(32, 32, bidirectional=True)
        self.linear = nn.Linear(64, 6)

    def loss(self, draw):
        sounds, labels = [], []
        for i in range(32):
            label, length = 0, 1 + draw.of_c(16)
            sounds.append([])
            labels.append([])
            for t in range(length):
                if t == 0 or draw.of_c(3) == 0:
                    label = 1 + (label + draw.of_c(4)) % 5
                    labels[i].append(label)
                sounds[i].append(2 * label + draw.of_c(2))
        lengths, counts = [len(row) for row in sounds], [len(row) for row in labels]
        y, _ = self.lstm(packed(self.embedding(padded(sounds, 16)), lengths))
        logits = self.linear(unpacked(y, 16)).log_softmax(2)
        return nn.functional.ctc_loss(logits, padded(labels, 16).t(), lengths, counts,
                                      reduction="sum") / len(sounds)


class Tagger(Model):
    """Where the tags around a word are given, each way through the words is a plain LSTM."""

    RATE = 0.01

    def __init__(self):
        super().__init__()
        self.letters, self.words = nn.Embedding(27, 12), nn.Embedding(201, 24)
        self.spelling = nn.LSTM(12, 16, bidirectional=True)
        for way in ("left", "right"):
            self.add_module(way + "_tags", nn.Embedding(5, 8))
            self.add_module(way + "_lstm", nn.LSTM(64, 32))
            self.add_module(way + "_scores", nn.Linear(32, 5))
        self.scores = nn.Linear(64, 5)

    @staticmethod
    def sentence(draw, length):
        """A sentence: its words' numbers, letters and tags."""
        words, letters, tags = [], [], []
        for _ in range(length):
            stem, tag, is_open = draw(100), 1 + draw(4), draw(3) == 0
            suffix = 0 if is_open else tag
            words.append(1 + stem * 5 + suffix if stem < 40 else 0)
            letters.append([1 + (stem * (k + 3) + k) % 26 for k in range(2 + stem % 3)]
                           + [1 + suffix, 1 + suffix * suffix])
            tags.append(1 + (tags or [0])[-1] % 4 if is_open else tag)
        return words, letters, tags

    def read(self, way, x, beside, lengths):
        """x and the tags beside: a list of sentences, each in the order in which it is read."""
        x = [torch.cat((a, getattr(self, way + "_tags")(torch.tensor(b))), 1)
             for a, b in zip(x, beside)]
        y, _ = getattr(self, way + "_lstm")(packed(nn.utils.rnn.pad_sequence(x), lengths))
        y = unpacked(y, max(lengths))
        return [y[:length, i] for i, length in enumerate(lengths)]

    def loss(self, draw):
        longest = 1 + draw(12)
        drawn = [self.sentence(draw, longest if i == 0 else 1 + draw(longest))
                 for i in range(16)]
        lengths = [len(words) for words, _, _ in drawn]
        spelled = [word for _, letters, _ in drawn for word in letters]
        _, (h, _) = self.spelling(packed(self.letters(padded(spelled, 6)), list(map(len, spelled))))
        words = self.words(torch.tensor([word for words, _, _ in drawn for word in words]))
        x = torch.cat((words, h[0], h[1]), 1).split(lengths)
        tags = [tags for _, _, tags in drawn]
        left = torch.cat(self.read("left", x, [[0] + row[:-1] for row in tags], lengths))
        right = torch.cat([y.flip(0) for y in self.read(
            "right", [a.flip(0) for a in x], [[0] + row[:0:-1] for row in tags], lengths)])
        targets = torch.tensor([tag for row in tags for tag in row])
        return sum(factor * nn.functional.cross_entropy(scores, targets) for factor, scores in (
            (1, self.scores(torch.cat((left, right), 1))), (0.5, self.left_scores(left)),
            (0.5, self.right_scores(right))))
