// The parts from which paged_attention.cpp is built: given.
#pragma once
#include <deque>
#include <memory>

#include "attention.h"

namespace tiny_llm {

// Positions of a request whose keys and whose values follow one another in memory from this row onwards. A page has
// page_size rows for each head of keys, one head after the other; `row` is counted from the first row of page 0.
struct Run {
    int64_t row, count;
};

// A request. The step's rows from `first` up to but not including `last` are the request's last positions. The cache
// stores `length` positions of the request.
struct Request {
    const int32_t* table;
    int64_t width;  // of the table
    int64_t first, last, length;
    int64_t parts = 0, place = 0;  // for few rows: the number of parts of the keys, and the place of the parts' results

    int64_t L() const { return last - first; }
    int64_t seen(int64_t i) const { return length - L() + i + 1; }  // how many positions row i sees, from 0 on
    int64_t page(int64_t i) const { return table[std::clamp(i, int64_t(0), width - 1)]; }  // its pages in order, from 0
};

struct PagesArguments {
    In<float, 3> query;         // T x H_q x D
    In<float, 4> keys, values;  // P x H_kv x page_size x D
    In<int32_t, 2> tables;      // R x width
    In<int32_t, 2> spans;       // R x 3
    Out<float, 3> out;          // as query
    float scale;
    int few;  // threads share a request's keys if it has at most this many rows
    Threads threads;
};

// The arguments of a call, and sizes that follow from them.
struct Step {
    Array query, out;
    StridedRows queries, keys, values, tables, spans;
    int64_t query_heads, D, kv_heads, page_size;
    int64_t width;          // of the tables
    int64_t group, padded;  // query heads per key head; D, rounded up to a multiple of 16
    float scale;

    explicit Step(const PagesArguments& call)
        : query(call.query),
          out(call.out),
          queries(query),
          keys(call.keys),
          values(call.values),
          tables(call.tables),
          spans(call.spans),
          query_heads(query.shape[1]),
          D(query.last()),
          kv_heads(call.keys.shape[1]),
          page_size(call.keys.shape[2]),
          width(call.tables.last()),
          group(query_heads / kv_heads),
          padded((D + 15) / 16 * 16),
          scale(call.scale) {}

    std::vector<Request> requests(int64_t count) const {
        std::vector<Request> all;
        for (int64_t r = 0; r < count; r++) {
            const int32_t* span = spans.at<int32_t>(r);
            all.push_back({tables.at<int32_t>(r), width, span[0], span[1], span[2]});
        }
        return all;
    }

    // Loads a row's query, times scale, padded with zeros.
    void load_query(int64_t row, int64_t head, float* to) const {
        dispatch_float(out.dtype, [&]<typename T>(T*) {
            const T* from = queries.at<T>(row * query_heads + head);
            int64_t d = 0;
            for (; d + WIDTH <= D; d += WIDTH) store(to + d, load(from + d) * scale);
            for (; d < padded; d++) to[d] = d < D ? scale * float(from[d]) : 0;
        });
    }
    void store_result(int64_t row, int64_t head, const float* from) const {
        dispatch_float(out.dtype, [&]<typename T>(T*) {
            T* to = out.as<T>() + (row * query_heads + head) * D;
            int64_t d = 0;
            for (; d + WIDTH <= D; d += WIDTH) store(to + d, load(from + d));
            for (; d < D; d++) to[d] = from[d];
        });
    }
};

Run find(const Step& step, const Request& request, int64_t head, int64_t position, int64_t end);

// The many rows of one request, as a Problem of attention.h: a prompt, or a chunk of a prompt.
class Prompt : public Problem {
   public:
    Prompt(const Step& step, const Request& request)
        : Problem(step.queries, step.keys, step.values, step.out), step_(step), request_(request) {
        L = request.L(), S = request.length, D = step.D;
        query_heads = step.query_heads, kv_heads = step.kv_heads;
        group = step.group, padded = step.padded;
        scale = step.scale, causal = true;
    }

    void load_query(int64_t head, int64_t i, float* to) const override {
        step_.load_query(request_.first + i, head, to);
    }
    void store_result(int64_t head, int64_t i, const float* from) const override {
        step_.store_result(request_.first + i, head, from);
    }
    void load_rows(const StridedRows& rows, int64_t kv_head, int64_t first, int64_t count, float* to) const override {
        for (int64_t position = first; position < first + count;) {
            const Run run = find(step_, request_, kv_head, position, first + count);
            copy_rows(rows, run.row, run.count, to + (position - first) * padded);
            position += run.count;
        }
    }

   private:
    const Step& step_;
    const Request& request_;
};

// Positions first to end of a request, in one head of keys. If rows are few, a thread takes one such part at a time.
struct KeyPart {
    const Request* request;
    int64_t head, first, end;

    int64_t size() const { return end - first; }
};

// The state of a thread, where rows are few: row r is row r % L of the request, in query head r / L of the heads that
// share the keys.
struct FewRows : DecodeAttention {
    const Step& step;
    std::vector<float> out;  // for each row, the sum of weighted values: `padded` numbers

    FewRows(const Step& step, int64_t most)
        : DecodeAttention(step.D, step.padded, step.group * most), step(step), out(rows * padded) {}

    // next: the part whose keys are needed next.
    void begin(const KeyPart& part, const KeyPart& next) {
        const int64_t L = part.request->L();
        rows = step.group * L, part_ = part, next_ = next;
        for (int64_t r = 0; r < rows; r++)
            step.load_query(part.request->first + r % L, part.head * step.group + r / L, &queries[r * padded]);
        std::fill_n(out.begin(), rows * padded, 0.f);
    }

    // Computes the scores of all rows and the run's keys, which are the part's keys from j onwards.
    void score(Run run, int64_t j) {
        stay_inside(run, j);
        const int64_t later = j + AHEAD - part_.size();  // after the keys come the values
        dispatch_float(step.out.dtype, [&]<typename T>(T*) {
            const T* ahead = later < 0 ? row_of<T>(step.keys, part_, j + AHEAD) : row_of<T>(step.values, part_, later);
            DecodeAttention::score(step.keys.at<T>(run.row), step.keys.step(), j, run.count, ahead);
        });
    }

    // Adds the run's values, which are the part's values from j onwards, times their weights, to each row's sum.
    void add_values(Run run, int64_t j) {
        stay_inside(run, j);
        const int64_t later = j + AHEAD - part_.size();
        dispatch_float(step.out.dtype, [&]<typename T>(T*) {
            const T* ahead = later < 0 ? row_of<T>(step.values, part_, j + AHEAD) : row_of<T>(step.keys, next_, later);
            DecodeAttention::add_values(step.values.at<T>(run.row), step.values.step(), j, run.count, ahead, out.data(),
                                        padded);
        });
    }

    // Turns the scores of a row into weights. The weights from `seen` on are 0: all weights if `seen` is 0 or less, and
    // no weight if `seen` is at least the number of keys.
    Sums weigh(int64_t row, int64_t seen) { return DecodeAttention::weigh(row, std::clamp(seen, int64_t(0), keys)); }

   private:
    // There is room for the scores of PART keys. A mistake in paged_attention.cpp must not overwrite other memory.
    static void stay_inside(Run& run, int64_t& j) {
        run.count = std::min(run.count, PART);
        j = std::clamp(j, int64_t(0), PART - run.count);
    }

    template <typename T>
    const T* row_of(const StridedRows& rows, const KeyPart& part, int64_t j) const {
        const int64_t position = std::min(part.first + j, part.end - 1);
        return rows.at<T>(find(step, *part.request, part.head, position, part.end).row);
    }

    KeyPart part_ = {}, next_ = {};
};

}  // namespace tiny_llm
