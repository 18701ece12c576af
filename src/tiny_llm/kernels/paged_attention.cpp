// Attention for the rows of many requests, whose keys and values are in the pages of a pool.
#include "attention/paged_attention.h"

#include "attend_block.h"

namespace tiny_llm {

// Finds the key of a request's position in one head of keys, and how many positions, up to `end`, follow one another
// from there in the key's page.
Run find(const Step& step, const Request& request, int64_t head, int64_t position, int64_t end) {
    int64_t row = 0, count = 0;  // the key's row; the rows from it to the end of its page
    // task w3d4.1 begin
    // Week 3 Day 4 Task 1: what belongs here is yours to write.
    // Chapter: Paged attention.
    // Test: ./course test w3d4.1
    // task w3d4.1 end
    // A run has at least one row, or the loops over runs would not end. If `count` is below 1, the run is row 0 of the
    // pool, so that the result is wrong.
    return count < 1 ? Run{0, 1} : Run{row, std::min(count, end - position)};
}

namespace {

// Computes a part of a request's keys in one head, for all rows that share these keys. Stores, for row r, the largest
// score and the sum of the weights in found[r], and the sum of the values times these weights in rows.out.
void attend_part(const Step& step, const KeyPart& part, FewRows& rows, Sums* found) {
    const Request& request = *part.request;
    // task w3d4.2 begin
    // Week 3 Day 4 Task 2: what belongs here is yours to write.
    // Chapter: Paged attention.
    // Test: ./course test w3d4.2
    // task w3d4.2 end
}

// Joins the results for the parts of a row's keys, and stores the row's result. sums: `padded` numbers for each part.
void join(const Step& step, int64_t row, int64_t head, int64_t parts, const Sums* found, const float* sums,
          float* joined) {
    float most = -FLT_MAX, total = 0;
    for (int64_t i = 0; i < parts; i++) most = std::fmax(most, found[i].largest);
    std::fill_n(joined, step.padded, 0.f);
    for (int64_t i = 0; i < parts; i++) {
        const float kept = std::exp(found[i].largest - most);
        total += found[i].total * kept;
        for (int64_t d = 0; d < step.padded; d++) joined[d] += sums[i * step.padded + d] * kept;
    }
    for (int64_t d = 0; d < step.padded; d++) joined[d] /= total;
    step.store_result(row, head, joined);
}

// A piece of work: for a prompt, a block of queries of one head; for a request with few rows, a part of one head's
// keys.
struct Item {
    const Request* request;
    const Prompt* prompt;  // or nullptr
    int64_t head, first;   // first: a query of a prompt, or a position
};

class Work {
   public:
    Work(const Step& step, std::vector<Request>& requests, int64_t few) : step_(step) {
        int64_t places = 0;
        for (auto& request : requests) {
            if (request.L() <= few) {
                request.parts = (request.length + PART - 1) / PART, request.place = places;
                most_ = std::max(most_, request.L());
                if (request.parts > 1) places += request.L() * step.query_heads * request.parts;
                for (int64_t i = 0; i < request.parts; i++)
                    for (int64_t head = 0; head < step.kv_heads; head++)
                        items_.push_back({&request, nullptr, head, i * PART});
            }
        }
        for (auto& request : requests) {
            if (request.L() > few) {
                prompts_.emplace_back(step, request);
                for (int64_t head = 0; head < step.query_heads; head++)
                    for (int64_t first = 0; first < request.L(); first += QUERIES)
                        items_.push_back({&request, &prompts_.back(), head, first});
            }
        }
        found_ = std::vector<Sums>(places);
        sums_.reset(new float[places * step.padded]);
    }

    void compute(const Threads& threads) {
        threads(int64_t(items_.size()), 1, [&](int64_t begin, int64_t end) {
            std::unique_ptr<Block> block;
            std::unique_ptr<FewRows> rows;
            std::vector<Sums> found(most_ * step_.group);
            for (int64_t i = begin; i < end; i++) {
                if (items_[i].prompt) {
                    if (!block) block = std::make_unique<Block>(step_.padded);
                    const Prompt& p = *items_[i].prompt;
                    attend_block(p, items_[i].head, items_[i].first, std::min(QUERIES, p.L - items_[i].first), *block);
                } else {
                    if (!rows) rows = std::make_unique<FewRows>(step_, most_);
                    compute_part(items_[i], items_[std::min(i + 1, int64_t(items_.size()) - 1)], *rows, found.data());
                }
            }
        });
    }

    void join_split_kv(const std::vector<Request>& requests) {
        std::vector<float> joined(step_.padded);
        for (auto& request : requests)
            for (int64_t r = 0; request.parts > 1 && r < request.L() * step_.query_heads; r++) {
                const int64_t place = request.place + r * request.parts;
                join(step_, request.first + r % request.L(), r / request.L(), request.parts, &found_[place],
                     &sums_[place * step_.padded], joined.data());
            }
    }

   private:
    static KeyPart part(const Item& item) {
        return {item.request, item.head, item.first, std::min(item.first + PART, item.request->length)};
    }

    void compute_part(const Item& item, const Item& next, FewRows& rows, Sums* found) {
        const Request& request = *item.request;
        const int64_t L = request.L();
        rows.begin(part(item), part(next.prompt ? item : next));
        attend_part(step_, part(item), rows, found);
        for (int64_t r = 0; r < rows.rows; r++) {
            const float* out = &rows.out[r * step_.padded];
            const int64_t head = item.head * step_.group + r / L;
            if (request.parts == 1) {
                join(step_, request.first + r % L, head, 1, &found[r], out, rows.queries.data());
            } else {
                const int64_t place = request.place + (head * L + r % L) * request.parts + item.first / PART;
                found_[place] = found[r];
                std::copy_n(out, step_.padded, &sums_[place * step_.padded]);
            }
        }
    }

    const Step& step_;
    std::deque<Prompt> prompts_;
    std::vector<Item> items_;
    std::vector<Sums> found_;
    std::unique_ptr<float[]> sums_;
    int64_t most_ = 0;
};

struct StoreArguments {
    In<float, 3> key, value;       // T x H_kv x D
    In<int32_t, 1> pages, places;  // T: where each row belongs
    Out<float, 4> keys, values;    // P x H_kv x page_size x D: what is stored in all pages
};

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(attend_pages, PagesArguments) {
    if (call.query.size() == 0) return;
    const Step step(call);
    auto requests = step.requests(call.spans.shape[0]);
    Work work(step, requests, call.few);
    work.compute(call.threads);
    work.join_split_kv(requests);
}

KERNEL(store_pages, StoreArguments) {
    const int64_t heads = call.keys.shape[1], page_size = call.keys.shape[2], D = call.keys.last();
    auto store = [&](const Array& given, const Array& stored) {
        const StridedRows rows(given);
        dispatch_float(stored.dtype, [&]<typename T>(T*) {
            for (int64_t t = 0; t < call.pages.size(); t++) {
                const int64_t page = call.pages.as<int32_t>()[t * call.pages.strides[0]];
                const int64_t place = call.places.as<int32_t>()[t * call.places.strides[0]];
                for (int64_t head = 0; head < heads; head++)
                    std::copy_n(rows.at<T>(t * heads + head), D,
                                stored.as<T>() + ((page * heads + head) * page_size + place) * D);
            }
        });
    };
    store(call.key, call.keys), store(call.value, call.values);
}
