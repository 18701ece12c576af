// RoPE: a thread rotates one pair in a few heads of one token.
//
// x and out: B x L x H x D numbers of type T. offsets: B first positions. frequency: for each of the D / 2 pairs, the
// turns from one position to the next, times 2^64. traditional: whether the numbers of a pair are neighbours.

constant constexpr uint HEADS = 4;                           // per thread: one sine and cosine serve all of them
constant constexpr float UNIT = 2 * M_PI_F / 4294967296.0f;  // 2^-32 turns, in radians

KERNEL(rope) {
    const uint L = x_shape[1], H = x_shape[2], D = x_shape[3];
    const uint i = thread_position_in_grid.x, token = thread_position_in_grid.y;  // of D / 2 pairs, of B * L tokens
    const uint first = thread_position_in_grid.z * HEADS;                         // the first of its heads

    // task w2d5.5 begin
    const long position = long(offsets[token / L]) + token % L;
    const ulong turns = position * frequency[i];  // 2^64 is one turn: whole turns overflow, and are gone
    const float angle = int(turns >> 32) * UNIT;  // 2^32 is one turn; as int, from half a turn back to half a turn on
    const float s = precise::sin(angle), c = precise::cos(angle);

    const uint next = traditional ? 2 : 1, partner = traditional ? 1 : D / 2;
    for (uint h = first; h < min(first + HEADS, H); h++) {
        const ulong at = (ulong(token) * H + h) * D + i * next;
        const float a = x[at], b = x[at + partner];
        out[at] = T(a * c - b * s);
        out[at + partner] = T(a * s + b * c);
    }
    // task w2d5.5 end
}
