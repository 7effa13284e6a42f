// The C interface from C++17: owners instead of destroy calls, exceptions instead of statuses. It continues a
// text. Usage: from_cpp MODEL-DIRECTORY TEXT
#include <qwen36.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{
struct destroy {
    void operator()(qwen36_model *model) const
    {
        qwen36_model_release(model);
    }
    void operator()(qwen36_session *session) const
    {
        qwen36_session_destroy(session);
    }
};

template <class T> using owner = std::unique_ptr<T, destroy>;

// Makes a call, handing it an error as its last argument; what it says becomes an exception.
template <class Call, class... Arguments> void must(Call call, Arguments... arguments)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    if (call(arguments..., &error) < 0)
        throw std::runtime_error(error.message);
}

// The same for a call that makes an object, by its pointer to pointer before the error.
template <class T, class Call, class... Arguments> owner<T> make(Call call, Arguments... arguments)
{
    T *made = nullptr;
    must(call, arguments..., &made);
    return owner<T>(made);
}

std::vector<int32_t> encode(const qwen36_tokenizer *tokenizer, const std::string &text)
{
    size_t count = 0; // no room is given at first, to learn how much it takes
    qwen36_tokenizer_encode(tokenizer, text.data(), text.size(), 0, nullptr, 0, &count, nullptr);
    std::vector<int32_t> ids(count);
    must(qwen36_tokenizer_encode, tokenizer, text.data(), text.size(), 0u, ids.data(), ids.size(), &count);
    return ids;
}

// An exception must not leave a callback: the C code in between knows nothing of it.
int32_t print(void *, int32_t, const char *text, size_t length) noexcept
{
    return std::cout.write(text, static_cast<std::streamsize>(length)).flush() ? 0 : 1;
}

void run(const char *directory, const std::string &text)
{
    const auto model = make<qwen36_model>(qwen36_model_load, directory, nullptr);
    const auto session = make<qwen36_session>(qwen36_session_create, model.get(), nullptr);
    const auto *tokenizer = qwen36_model_tokenizer(model.get());
    if (tokenizer == nullptr)
        throw std::runtime_error("the model directory has no tokenizer.json");
    const auto ids = encode(tokenizer, text);
    must(qwen36_session_append, session.get(), ids.data(), ids.size(), QWEN36_LOGITS_LAST);
    qwen36_generate_options options;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = 60;
    options.on_text = print;
    std::cout << text;
    must(qwen36_generate, session.get(), &options, nullptr);
    std::cout << std::endl;
}
} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::cerr << "usage: from_cpp MODEL-DIRECTORY TEXT\n";
        return 2;
    }
    try {
        run(argv[1], argv[2]);
    } catch (const std::exception &problem) {
        std::cerr << "from_cpp: " << problem.what() << '\n';
        return 1;
    }
    return 0;
}
