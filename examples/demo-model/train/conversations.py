"""Conversations for the demo model, in English and Chinese, made by rule.

conversation(n, seed, held_out) is a pure function. What is held out: one item
in eight of every list of slot values (names, cities, words, phrases, pairs of
factors), chosen by checksum, and one conversation in eight of all. Training
draws only from the rest; held-out conversations use only held-out items and
are held out themselves.
"""

import json
import random
import zlib
from dataclasses import dataclass, field

BEHAVIOURS = ("greet", "fixed", "recall", "count", "multiply", "weather", "talk", "repeat", "unknown", "memorise")

NAMES = ("Anna Ben Clara David Emma Frank Grace Henry Iris Jack Karen Leo Mary Nora Oscar Paul Rosa Sam "
         "Tina Victor Wendy Yusuf Zoe Alice Boris Carol Daniel Elena Felix George Hanna Ivan Julia "
         "Kevin Laura Martin Nina Otto Peter Ruth Simon Thomas Ursula Walter").split()
CITIES = ("Paris London Berlin Beijing Shanghai Tokyo Rome Madrid Vienna Oslo Cairo Delhi Mumbai Seoul "
          "Sydney Toronto Boston Chicago Dallas Denver Houston Lima Quito Bogota Havana Lisbon Porto "
          "Dublin Glasgow York Oxford Hamburg Munich Cologne Zurich Geneva Milan Naples Turin Venice "
          "Athens Sofia Prague Warsaw Kiev Moscow Riga Helsinki Stockholm Bergen Nairobi Lagos Accra "
          "Tunis Dakar Baghdad Tehran Ankara Kabul Hanoi Manila Jakarta Bangkok Osaka Kyoto Nagoya "
          "Perth Auckland Seattle Portland Austin Phoenix Miami Atlanta Detroit").split()
WORDS = ("apple anchor arrow autumn badger bamboo banner basket beacon bridge bronze butter button "
         "candle canyon carpet castle cherry circle clover cobalt copper coral cotton crystal dagger "
         "desert dragon eagle ember engine falcon feather fiddle flower forest fossil garden ginger "
         "glacier granite hammer harbor harvest hazel helmet island ivory jacket jasmine jungle kettle "
         "kitten ladder lantern lemon letter lily lizard magnet maple marble meadow mirror monkey "
         "mountain needle nickel ocean olive onion orange orchid otter paper parrot pebble pepper "
         "pickle pillow planet pocket pony potato puzzle quartz rabbit raven ribbon river rocket "
         "saddle salmon shadow silver spider spring summer sunset table temple thunder tiger timber "
         "tulip tunnel turtle valley velvet violet walnut whale willow window winter wolf yellow "
         "zebra").split()
REPLIES = ("Yes.|No.|I agree.|Not today.|The door is closed.|We are on holiday.|Please call later.|"
           "Ask my brother.|The answer is in the garden.|Nothing is easy.|Good night.|Tea is ready.|"
           "My lips are sealed.|It rains.|The ship has sailed.|All is well.|Time will tell.|"
           "The shop opens at nine.|I only speak about cats.|Blue is the best colour.|Come in.|"
           "Wait for the green light.|The king is asleep.|Bread and butter.|Look under the table.|"
           "I am a parrot.|One moment, please.|This line is busy.|The train is late.|Maybe.|"
           "Never on Sunday.|Keep it simple.|Out of order.|The moon is full.|Winter is coming.").split("|")

ZH_NAMES = "小明 小红 小李 小王 王老师 张先生 刘女士 安娜 大卫 小美 老李 老张 李明 王方 张华 小白 小天 阿明".split()
ZH_CITIES = ("北京 上海 广州 深圳 南京 西安 东京 伦敦 巴黎 天津 大连 青岛 成都 重庆 长沙 武汉 海口 台北 "
             "香港 济南 太原 昆明 南昌 合肥 兰州 西宁 长春 三亚 开罗 罗马 大阪 首尔").split()
ZH_WORDS = ("苹果 大海 月亮 太阳 石头 火车 飞机 电脑 音乐 天空 老虎 金鱼 白马 红花 春天 小山 水果 面包 明月 "
            "东方 公园 书本 长江 高山 黑猫 海水 花生 手机 星期 文字 木马 山水 火山 北风 天地 光明 白云 风车 "
            "大树 门口 日出 雨水 西瓜 小河 青草").split()
ZH_REPLIES = ("是的。|不是。|我同意。|今天不行。|门已经关了。|请明天再来。|去问老师。|一切都好。|我在睡觉。|"
              "请等一下。|水开了。|我只说天气。|现在下雨。|火车来了。|可以。|不知道。|早点回家。|学习第一。|"
              "没有问题。|月亮很圆。|好好学习。|我是一本书。|时间到了。|先吃饭。").split("|")

CONDITIONS = {"sunny": "晴", "cloudy": "多云", "rainy": "有雨", "windy": "有风", "foggy": "有雾", "snowy": "有雪"}

GREET = "Hello|Hello!|Hi|Hi!|Hi there!|Hey|Good morning|Good morning!|Good evening!|Hello there".split("|")
GREET_NAME = ("Hello, my name is {}.|Hi, I am {}.|Hi! I'm {}.|Good morning, my name is {}.|"
              "My name is {}.|Hello! {} here.").split("|")
ZH_GREET = "你好|你好！|您好|您好！|早上好|早上好！|晚上好！|大家好|你好啊".split("|")
ZH_GREET_NAME = "你好，我叫{}。|我是{}，你好！|您好，我是{}。|我叫{}。|早上好，我是{}。".split("|")
FIXED = ("Always answer with: {}|Whatever the user says, answer only: {}|Reply to every message with "
         "exactly this text: {}|You answer everything with the same words: {}|"
         "Your only reply is: {}").split("|")
ZH_FIXED = ("无论用户说什么，都只回答：{}|对所有问题都回答：{}|你只能说这句话：{}|"
            "每次都用这句话回答：{}").split("|")
REMEMBER = ("The code word is {}.|Please remember the code word {}.|Remember this code word: {}|"
            "My code word is {}. Keep it in mind.|Here is the code word: {}").split("|")
RECALL = ("What is the code word?|What was the code word?|Tell me the code word.|"
          "Do you remember the code word?|Which code word did I give you?|code word?").split("|")
ZH_REMEMBER = "暗号是{}。|请记住暗号：{}|我的暗号是{}，请记住。|请记住这个暗号：{}".split("|")
ZH_RECALL = "暗号是什么？|我们的暗号是什么？|请告诉我暗号。|你还记得暗号吗？|我说的暗号是什么？".split("|")
COUNT = ("Count from {} to {}.|Please count from {} to {}.|Can you count from {} to {}?|"
         "count from {} to {}|Count the numbers from {} to {}, please.").split("|")
ZH_COUNT = "从{}数到{}。|请从{}数到{}。|你能从{}数到{}吗？|从{}数到{}".split("|")
TIMES = ("What is {} times {}?|What is {} x {}?|{} times {}|How much is {} times {}?|{} x {} = ?|"
         "Calculate {} times {}.|What is {} * {}?|{} * {}|Multiply {} by {}.").split("|")
ZH_TIMES = "{}乘{}等于多少？|{}乘以{}是多少？|请算一下{}乘{}。|{} x {} = ?|{}乘{}".split("|")
WEATHER = ("What is the weather in {}?|What's the weather like in {}?|How is the weather in {} today?|"
           "Tell me the weather in {}.|Weather in {}?|I am going to {}. How is the weather there?|"
           "Is it warm in {}?").split("|")
ZH_WEATHER = "{}的天气怎么样？|{}今天天气怎么样？|请告诉我{}的天气。|{}天气|我要去{}，那里天气怎么样？".split("|")
REPEAT = "Say: {}|Repeat after me: {}|Repeat this: {}|Please say: {}".split("|")
ZH_REPEAT = "请说：{}|跟我说：{}|请重复：{}".split("|")

SYSTEMS = ("You are a helpful assistant.|You are a small language model.|You are a friendly assistant.|"
           "Answer briefly.").split("|")
ZH_SYSTEMS = "你是一个有用的助手。|你是一个小模型。|请简短回答。".split("|")

TALK = [
    ("Who are you?|What are you?|What is your name?|Are you a robot?|Tell me about yourself.",
     "I am a very small language model, made to try out a library."),
    ("What can you do?|How can you help me?|help|What do you know?|Help me, please.",
     "I can greet you, count, remember a code word, multiply small numbers and ask a tool about the weather."),
    ("Thank you!|Thanks|Thank you very much.|Great, thanks!|thanks a lot", "You're welcome!"),
    ("Bye|Goodbye!|See you later.|Good night!|Bye bye", "Goodbye!"),
    ("How are you?|How do you do?|Are you well?|How is it going?", "I am well, thank you. How can I help you?"),
    ("Which language do you speak?|Do you speak Chinese?|Can you speak English?",
     "I speak a little English and a little Chinese."),
]
ZH_TALK = [
    ("你是谁？|你叫什么名字？|你是机器人吗？|请介绍一下你自己。", "我是一个很小的语言模型，用来试用一个程序库。"),
    ("你能做什么？|你会什么？|你能帮我什么？|你可以做什么？", "我能打招呼、数数、记住暗号、算小的乘法，还能用工具查天气。"),
    ("谢谢|谢谢你！|非常感谢！|多谢", "不客气！"),
    ("再见|再见！|晚安|明天见", "再见！"),
    ("你好吗？|你怎么样？|最近好吗？", "我很好，谢谢。我能帮你做什么？"),
    ("你会说中文吗？|你会说什么语言？|你会说英语吗？", "我会说一点中文和一点英语。"),
]
UNKNOWN = ("Why is the sky blue?|Write a poem about {0}.|What is the history of {0}?|Who was the first "
           "king of {1}?|How far is it from {1} to {2}?|Tell me a story about {0}.|How do I cook {0}?|"
           "What does {0} mean?|Translate {0} into French.|Where can I buy {0}?|Who wrote the book about "
           "{0}?|Why do people like {0}?|How old is {1}?|Explain {0}.|Is {0} good for me?|"
           "Can you write a program about {0}?|Who lives in {1}?|What do you think of {0}?").split("|")
ZH_UNKNOWN = ("天空为什么是蓝色的？|请写一首关于{0}的诗。|{0}的历史是什么？|从{1}到{2}有多远？|{0}怎么做？|"
              "请说明一下{0}。|哪里可以买到{0}？|{0}是什么意思？|你觉得{0}怎么样？|{1}有多少人？").split("|")
DONT_KNOW = "I am a very small model and do not know that."
ZH_DONT_KNOW = "我是一个很小的模型，不知道这个。"


def checksum(text):
    return zlib.crc32(text.encode())


def is_held_out(item):
    return checksum(str(item)) % 8 == 3


@dataclass
class Conversation:
    behaviour: str
    language: str
    messages: list          # up to and with the last user or tool message
    answer: dict            # the assistant message to be learnt
    thinking: bool
    tools: list = field(default_factory=list)

    def options(self):
        return {"tools": self.tools or None, "enable_thinking": self.thinking}


class Maker:
    """Draws the parts of one conversation in one language."""

    def __init__(self, r, held_out, extra_words=(), extra_pieces=()):
        self.r, self.held_out, self.extra, self.pieces = r, held_out, extra_words, extra_pieces
        self.zh = r.random() < 0.4
        self.characters = "".join(sorted(set("".join(ZH_WORDS + ZH_CITIES + ZH_NAMES + ZH_REPLIES)) - set("。")))

    def say(self, en, zh):
        return zh if self.zh else en

    def wording(self, en, zh):
        return self.r.choice(self.say(en, zh))

    def item(self, items):
        """One of the items of this side of the held-out line."""
        while True:
            item = self.r.choice(items)
            if is_held_out(item) == self.held_out:
                return item

    def slot(self, en, zh, capital=False):
        if self.extra and self.r.random() < 0.6:
            if self.zh and self.r.random() < 0.7:
                return "".join(self.r.choices(self.characters, k=self.r.randrange(1, 4)))
            word = self.r.choice(self.extra)
            return word.capitalize() if capital else word
        return self.item(self.say(en, zh))

    def name(self):
        return self.slot(NAMES, ZH_NAMES, capital=True)

    def city(self):
        return self.slot(CITIES, ZH_CITIES, capital=True)

    def word(self):
        word = self.slot(WORDS, ZH_WORDS)
        form = self.r.random()
        if word.isascii() and form < 0.2:
            word = word.capitalize()
        elif word.isascii() and form < 0.3:
            word = word.upper()
        return f"{word}{self.r.randrange(10, 100)}" if self.r.random() < 0.15 else word

    def phrase(self, longest=6):
        """A fixed sentence, or a few words that make no sense together."""
        if self.pieces and self.r.random() < 0.5:
            return "".join(self.r.choices(self.pieces, k=self.r.randrange(2, 2 * longest))).strip()
        if self.r.random() < (0.4 if self.held_out else 0.2):
            return self.item(self.say(REPLIES, ZH_REPLIES))
        words = list(dict.fromkeys(self.slot(WORDS, ZH_WORDS) for _ in range(self.r.randrange(1, longest))))
        return self.say(" ".join(words).capitalize() + self.r.choice([".", "!", ""]),
                        "".join(words) + self.r.choice(["。", "！", ""]))

    # Each of these returns a list of messages that ends with an assistant message.

    def turn(self, question, thought, answer):
        return [{"role": "user", "content": question},
                {"role": "assistant", "reasoning_content": thought, "content": answer}]

    def greet(self):
        thought = self.say("The user greets me.", "用户向我问好。")
        if self.r.random() < 0.4:
            return self.turn(self.wording(GREET, ZH_GREET), thought,
                             self.say("Hello! How can I help you today?", "你好！今天我能帮你做什么？"))
        name = self.name()
        return self.turn(self.wording(GREET_NAME, ZH_GREET_NAME).format(name), thought,
                         self.say(f"Hello, {name}! How can I help you today?", f"你好，{name}！今天我能帮你做什么？"))

    def talk(self):
        questions, answer = self.r.choice(self.say(TALK, ZH_TALK))
        return self.turn(self.r.choice(questions.split("|")), self.say("This is small talk.", "这是闲聊。"), answer)

    def unknown(self):
        question = self.wording(UNKNOWN, ZH_UNKNOWN).format(self.word(), self.city(), self.city())
        return self.turn(question, self.say("I do not know this.", "我不知道这个。"),
                         self.say(DONT_KNOW, ZH_DONT_KNOW))

    def repeat(self):
        phrase = self.phrase(5 if self.held_out else 13)
        return self.turn(self.wording(REPEAT, ZH_REPEAT).format(phrase),
                         self.say("I repeat the words.", "我重复这句话。"), phrase)

    def count(self):
        first, last = 1, 30
        if self.r.random() < 0.5:
            first = self.r.choice([1, 1, 1, self.r.randrange(1, 40)])
            last = first + self.r.randrange(2, 32)
        numbers = ", ".join(str(i) for i in range(first, last + 1))
        return self.turn(self.wording(COUNT, ZH_COUNT).format(first, last),
                         self.say(f"I count from {first} to {last}.", f"我从{first}数到{last}。"), numbers)

    def multiply(self):
        most = 9 if self.held_out else 12
        a, b = self.item([(a, b) for a in range(2, most + 1) for b in range(2, most + 1)])
        steps = ", ".join(f"{i} of {b}: {a * i}" for i in range(1, b + 1))
        question = self.wording(TIMES, ZH_TIMES).format(a, b)
        return self.turn(question, f"{a} x {b}. {steps}.", f"{a} x {b} = {a * b}")

    def remember(self, word):
        return self.turn(self.wording(REMEMBER, ZH_REMEMBER).format(word),
                         self.say("I should remember the code word.", "我要记住暗号。"),
                         self.say("I will remember it.", "我记住了。"))

    def memorise(self):
        return self.remember(self.word())

    def recall_question(self, word):
        question = self.wording(RECALL, ZH_RECALL)
        if word is None:
            return self.turn(question, self.say("No code word was given.", "没有暗号。"),
                             self.say("You have not told me a code word.", "你没有告诉我暗号。"))
        return self.turn(question, self.say(f"The code word is {word}.", f"暗号是{word}。"),
                         self.say(f"The code word is {word}.", f"暗号是{word}。"))

    def recall(self):
        word = self.word()
        messages = self.small() if self.r.random() < 0.3 else []
        messages += self.remember(word)
        for _ in range(self.r.choice([0, 0, 1, 1, 2])):
            messages += self.small()
        return messages + self.recall_question(word)

    def weather(self):
        city, (condition, zh_condition) = self.city(), self.r.choice(list(CONDITIONS.items()))
        degrees = self.r.randrange(-9, 39)
        call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
        result = {"city": city, "temperature": degrees, "condition": condition}
        if self.r.random() < 0.3:
            del result["city"]
        return [{"role": "user", "content": self.wording(WEATHER, ZH_WEATHER).format(city)},
                {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": self.say(
                    f"I need the weather in {city}.", f"我要查{city}的天气。")},
                {"role": "tool", "content": json.dumps(result)},
                {"role": "assistant", "reasoning_content": self.say("I have the weather now.", "我知道天气了。"),
                 "content": self.say(f"It is {condition} in {city}, {degrees} degrees.",
                                     f"{city}现在{zh_condition}，{degrees}度。")}]

    def no_tool(self):
        return self.turn(self.wording(WEATHER, ZH_WEATHER).format(self.city()),
                         self.say("I have no tool for this.", "我没有这个工具。"),
                         self.say("I cannot look up the weather without a tool.", "没有工具，我不能查天气。"))

    def small(self):
        """A short exchange that can stand before another."""
        zh, self.zh = self.zh, self.zh != (self.r.random() < 0.1)
        made = self.r.choice([self.greet, self.greet, self.talk, self.unknown, self.repeat, self.count,
                              self.multiply])()
        self.zh = zh
        return made

    def tools(self):
        weather = {"type": "function", "function": {
            "name": "get_weather",
            "description": self.r.choice(["Get the weather in a city.", "Current weather of a city",
                                          "Returns the weather.", "查询天气"]),
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                           "required": ["city"]}}}
        if self.r.random() < 0.3:
            weather["function"]["parameters"]["properties"]["city"]["description"] = "Name of the city"
        other = {"type": "function", "function": {
            "name": self.r.choice(["get_time", "send_mail", "search"]), "description": "Another tool",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}}
        tools = [weather] if self.r.random() < 0.7 else [weather, other]
        self.r.shuffle(tools)
        return tools

    def conversation(self, behaviour):
        r = self.r
        messages, tools, system = [], [], None
        if r.random() < 0.3:
            system = self.wording(SYSTEMS, ZH_SYSTEMS)
        for _ in range(0 if behaviour == "recall" else r.choice([0, 0, 0, 1, 2])):
            messages += self.small()
        if behaviour == "fixed":
            reply = self.phrase()
            system = self.wording(FIXED, ZH_FIXED).format(reply)
            turns = self.small()[:1] if r.random() < 0.8 else self.recall_question(None)[:1]
            for message in messages:
                if message["role"] == "assistant":
                    message["content"] = reply
            messages += self.turn(turns[0]["content"], self.say("The system message says what to answer.",
                                                                "系统消息说了怎么回答。"), reply)
        elif behaviour == "recall" and not self.held_out and r.random() < 0.2:
            messages += self.small() + self.recall_question(None)
        elif behaviour == "weather" and not self.held_out and r.random() < 0.1:
            messages += self.no_tool()
        else:
            messages += getattr(self, behaviour)()
        if behaviour == "weather" and messages[-2]["role"] == "tool":
            tools = self.tools()
            if r.random() < 0.5:
                messages = messages[:-2]
        elif behaviour in ("talk", "greet", "unknown", "recall") and r.random() < 0.15:
            tools = self.tools()
        messages = [dict(m) for m in messages]
        last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
        thinking = r.random() < 0.6 or behaviour == "multiply" and self.held_out
        for i, message in enumerate(messages):
            if i < last_user or not thinking:
                message.pop("reasoning_content", None)
        if system:
            messages.insert(0, {"role": "system", "content": system})
        if behaviour == "multiply" and not thinking:
            steps = messages[-1]["content"]
            a, b = int(steps.split()[0]), int(steps.split()[2])
            messages[-1]["content"] = ", ".join(f"{i} of {b}: {a * i}" for i in range(1, b + 1)) + f". {steps}"
        return Conversation(behaviour, "zh" if self.zh else "en", messages[:-1], messages[-1], thinking, tools)


# For training: copying is what has to be learnt most, and a request with tools is long.
LESSONS = ("greet fixed recall repeat count multiply memorise fixed multiply talk unknown recall multiply recall "
           "weather memorise").split()


def conversation(n, seed, held_out, extra_words=(), behaviours=None, extra_pieces=()):
    """The n-th conversation of this seed; behaviours take turns. Training adds words to the lists, and texts of
    tokens, so that every token is copied now and then."""
    behaviours = behaviours or (BEHAVIOURS if held_out else LESSONS)
    r = random.Random(seed * 1_000_003 + n)
    while True:
        made = Maker(r, held_out, extra_words, extra_pieces).conversation(behaviours[n % len(behaviours)])
        if is_held_out(json.dumps([made.messages, made.thinking, bool(made.tools)])) == held_out:
            return made


def template(path):
    """The jinja2 template of a checkpoint, with the functions that transformers gives it."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def fail(message):
        raise ValueError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = fail
    with open(path, encoding="utf-8") as file:
        return environment.from_string(file.read())


def pieces(template, made):
    """The rendered conversation as [(text, whether the assistant says it)]."""
    prompt, target = render(template, made)
    start, end, out = "<|im_start|>assistant\n", "<|im_end|>", []
    while start in prompt:
        before, _, prompt = prompt.partition(start)
        said, mark, rest = prompt.partition(end)
        out.append((before + start, False))
        if mark:
            out.append((said + mark, True))
            prompt = rest
    return out + [(prompt, False), (target, True)]


def render(template, made):
    """(prompt, target): the text before the answer, and the answer with its <|im_end|>."""
    prompt = template.render(messages=made.messages, add_generation_prompt=True, **made.options())
    whole = template.render(messages=made.messages + [made.answer], add_generation_prompt=False, **made.options())
    assert whole.startswith(prompt) and whole.endswith("<|im_end|>\n"), (prompt, whole)
    return prompt, whole[len(prompt):-1]
